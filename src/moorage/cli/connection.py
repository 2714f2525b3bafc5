"""Connection of commands that work through the API alone: our cluster's, or any by kubeconfig."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from moorage.cli.options import cluster_of, data_dir_option

if TYPE_CHECKING:
    from moorage.client import Client


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--data-dir`, `--kubeconfig` and `--context` to a command."""
    options = (
        data_dir_option,
        click.option(
            "--kubeconfig",
            "kubeconfig",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Kubeconfig of another Kubernetes cluster, in place of --data-dir's.",
        ),
        click.option("--context", metavar="NAME", help="The kubeconfig's context."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def connect(
    data_dir: Path, kubeconfig: Path | None, context: str | None, user_agent: str
) -> Client:
    """Return a client, to be used in `async with`.

    Raises UsageError for a context without kubeconfig, ConfigError for a damaged one,
    NotRunningError if our cluster does not run.
    """
    if kubeconfig is None:
        if context is not None:
            raise click.UsageError("--context needs --kubeconfig")
        cluster = cluster_of(data_dir)
        cluster.running_settings()
        return cluster.client(user_agent)
    from moorage.client import Client, load_kubeconfig

    return Client(load_kubeconfig(kubeconfig, context), user_agent=user_agent)
