"""Connection of commands: to a kubeconfig's cluster, or to the one in the data directory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from moorage.cli.options import cluster_of, data_dir_option
from moorage.client import Client, load_kubeconfig

F = TypeVar("F", bound=Callable[..., Any])


def connection_options(command: F) -> F:
    """Add the options `--kubeconfig`, `--context` and `--data-dir`."""
    kubeconfig = click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="Kubeconfig of another cluster, in place of the one in the data directory.",
    )
    context = click.option(
        "--context", metavar="NAME", help="The kubeconfig's context; its current one by default."
    )
    decorated: F = kubeconfig(context(data_dir_option(command)))
    return decorated


@asynccontextmanager
async def connected(
    data_dir: Path, kubeconfig: Path | None, context: str | None, user_agent: str
) -> AsyncIterator[Client]:
    """Yield a client of the kubeconfig's cluster, else of the one in the data directory.

    Raises ConfigError, and NotRunningError when the directory's cluster does not run.
    """
    if kubeconfig is not None:
        client = Client(load_kubeconfig(kubeconfig, context), user_agent=user_agent)
    else:
        if context is not None:
            raise click.UsageError("--context needs --kubeconfig")
        cluster = cluster_of(data_dir)
        cluster.running_settings()
        client = cluster.client(user_agent)
    async with client:
        yield client
