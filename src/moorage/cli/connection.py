"""Connections of commands that work on any Kubernetes: our cluster's, or a kubeconfig's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from moorage.cli.options import cluster_of, data_dir_option

if TYPE_CHECKING:
    from moorage.client import Client, ClientConfig

kubeconfig_option: Callable[..., Any] = click.option(
    "--kubeconfig",
    "kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Kubeconfig of another Kubernetes; without it, the cluster in --data-dir.",
)
context_option: Callable[..., Any] = click.option(
    "--context", metavar="NAME", help="The kubeconfig's context; its current one by default."
)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--data-dir`, `--kubeconfig` and `--context` to a command."""
    for option in (context_option, kubeconfig_option, data_dir_option):
        command = option(command)
    return command


def connection(data_dir: Path, kubeconfig: Path | None, context: str | None) -> ClientConfig:
    """Return the connection that the options name.

    Raises NotRunningError if our cluster does not run, ConfigError for an unusable kubeconfig,
    UsageError for a context without a kubeconfig.
    """
    from moorage.client import load_kubeconfig

    if kubeconfig is not None:
        return load_kubeconfig(kubeconfig, context)
    if context is not None:
        raise click.UsageError("--context needs --kubeconfig")
    cluster = cluster_of(data_dir)
    _ = cluster.running_settings()
    return load_kubeconfig(cluster.kubeconfig)


def connect(
    data_dir: Path, kubeconfig: Path | None, context: str | None, user_agent: str
) -> Client:
    """Return a client of that connection, to be used in `async with`. Raises like `connection`."""
    from moorage.client import Client

    return Client(connection(data_dir, kubeconfig, context), user_agent=user_agent)
