"""Connections of commands that work on any Kubernetes: our cluster's, or a kubeconfig's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from moorage.cli.options import cluster_of
from moorage.client import ClientConfig, load_kubeconfig

kubeconfig_option: Callable[..., Any] = click.option(
    "--kubeconfig",
    "kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Kubeconfig of another Kubernetes; without it, the cluster in --data-dir.",
)
context_option: Callable[..., Any] = click.option(
    "--context", metavar="NAME", help="The kubeconfig's context; its current one by default."
)


def connection(data_dir: Path, kubeconfig: Path | None, context: str | None) -> ClientConfig:
    """Return the connection that the options name.

    Raises NotRunningError if our cluster does not run, ConfigError for an unusable kubeconfig,
    UsageError for a context without a kubeconfig.
    """
    if kubeconfig is not None:
        return load_kubeconfig(kubeconfig, context)
    if context is not None:
        raise click.UsageError("--context needs --kubeconfig")
    cluster = cluster_of(data_dir)
    _ = cluster.running_settings()
    return load_kubeconfig(cluster.kubeconfig)
