"""Connections of commands that work on any Kubernetes: our cluster's, or a kubeconfig's.

Every such command has the options `--kubeconfig`, `--context` and `--data-dir`, and gets what they
choose as a `Target`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from moorage.cli.factory import factory
from moorage.cli.options import cluster_of, data_dir_option
from moorage.cluster.errors import NotRunningError

if TYPE_CHECKING:
    from moorage.cluster import Cluster
    from moorage.wire.client.config import ClientConfig
    from moorage.wire.client.rest import Client

KUBECONFIG_VARIABLE = "KUBECONFIG"
_HINT = "--kubeconfig, --context or KUBECONFIG choose another Kubernetes"
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)

kubeconfig_option: Callable[..., Any] = click.option(
    "--kubeconfig",
    "kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Kubeconfig of the cluster. Without it: --data-dir's cluster if that is given, else "
    "KUBECONFIG's, else the one in the default data directory. With --context, as for kubectl.",
)
context_option: Callable[..., Any] = click.option(
    "--context",
    metavar="NAME",
    help="The kubeconfig's context; its current one by default.",
)


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a command works on, as its options and environment choose it.

    kubeconfigs: files of another Kubernetes, merged as kubectl does; empty for `cluster`.
    cluster: our cluster on this machine; None for another Kubernetes.
    """

    kubeconfigs: tuple[Path, ...] = ()
    context: str | None = None
    cluster: Cluster | None = None

    def config(self) -> ClientConfig:
        """Return the connection.

        Raises NotRunningError if our cluster does not run, ConfigError for an unusable kubeconfig.
        """
        from moorage.wire.client.config import load_kubeconfig, load_kubeconfigs

        if self.cluster is None:
            return load_kubeconfigs(self.kubeconfigs, self.context)
        try:
            self.cluster.running_settings()
        except NotRunningError as error:
            raise NotRunningError(f"{error}; {_HINT}") from error
        return load_kubeconfig(self.cluster.kubeconfig)

    def client(self, user_agent: str) -> Client:
        """Return a client, to be used in `async with`. Raises like `config`."""
        return factory().client(self.config(), user_agent)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--kubeconfig`, `--context` and `--data-dir` to a command, which gets them as `target`.

    Raises UsageError, when the command is called, for options that exclude each other.
    """

    @functools.wraps(command)
    def targeted(
        *arguments: Any,
        kubeconfig: Path | None,
        context: str | None,
        data_dir: Path,
        **options: Any,
    ) -> Any:
        source = click.get_current_context().get_parameter_source("data_dir")
        if context is not None and kubeconfig is None and source is ParameterSource.COMMANDLINE:
            raise click.UsageError("--context names a kubeconfig's context: leave out --data-dir")
        target = target_of(kubeconfig, context, data_dir, is_directory_given=source in _GIVEN)
        return command(*arguments, target=target, **options)

    wrapped: Callable[..., Any] = targeted
    for option in (data_dir_option, context_option, kubeconfig_option):
        wrapped = option(wrapped)
    return wrapped


def target_of(
    kubeconfig: Path | None,
    context: str | None,
    data_dir: Path,
    *,
    is_directory_given: bool,
    environment: Mapping[str, str] = os.environ,
) -> Target:
    """Return the cluster that the options and KUBECONFIG choose.

    The first that is given: `kubeconfig`; a context of the user's own kubeconfigs; `data_dir`;
    KUBECONFIG. Otherwise the default `data_dir`. Without a context, the kubeconfig of one of our
    clusters on this machine chooses that cluster. Raises CliError for a path that cannot be
    resolved.
    """
    files = _users_kubeconfigs(environment)
    if kubeconfig is not None:
        files = (kubeconfig,)
    elif context is not None:
        files = files or (factory().users_kubeconfig,)
    elif is_directory_given or not files:
        return Target(cluster=cluster_of(data_dir))
    if context is None and len(files) == 1:
        cluster = cluster_of(files[0].parent)
        if files[0].resolve() == cluster.kubeconfig.resolve() and cluster.layout.settings.is_file():
            return Target(cluster=cluster)
    return Target(files, context)


def _users_kubeconfigs(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files that KUBECONFIG names; none if it is not set."""
    named = environment.get(KUBECONFIG_VARIABLE, "").split(os.pathsep)
    return tuple(Path(name) for name in named if name)
