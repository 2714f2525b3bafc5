"""Command `moor completion`: prints a shell's completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from moorage.cli.errors import CliError


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell: eval "$(moor completion bash)"."""
    from moorage.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise CliError(f"no completion for {shell}")
    click.echo(kind(cli, {}, "moor", "_MOOR_COMPLETE").source())
