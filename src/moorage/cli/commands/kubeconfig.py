"""`moor kubeconfig`."""

from __future__ import annotations

from pathlib import Path

import click

from moorage.cli.errors import CliError
from moorage.cli.options import data_dir_option, layout_of, present_settings
from moorage.client.config import ConfigError
from moorage.cluster import kubeconfig
from moorage.cluster.creation import access

_USER_FILE = Path.home() / ".kube" / "config"


@click.command("kubeconfig")
@data_dir_option
@click.option("--merge", is_flag=True, help="Add the cluster to your own kubeconfig.")
@click.option("--unmerge", is_flag=True, help="Take the cluster out of your own kubeconfig.")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=_USER_FILE,
    show_default="~/.kube/config",
    help="Your own kubeconfig.",
)
def command(data_dir: Path, *, merge: bool, unmerge: bool, file: Path) -> None:
    """Say where the cluster's kubeconfig is, or add the cluster to yours.

    Your own file is never written without --merge or --unmerge.
    """
    if merge and unmerge:
        raise click.UsageError("--merge and --unmerge exclude each other")
    layout = layout_of(data_dir)
    settings = present_settings(layout)
    try:
        if merge:
            kubeconfig.merge(file, access(layout, settings))
            click.echo(f"added context {settings.name} to {file}")
        elif unmerge:
            kubeconfig.unmerge(file, settings.name)
            click.echo(f"removed {settings.name} from {file}")
        else:
            click.echo(str(layout.kubeconfig))
    except ConfigError as error:
        raise CliError(str(error)) from error
