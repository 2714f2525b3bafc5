"""Commands that run one part in the foreground, as `moor engine` does, until SIGTERM or Ctrl-C.

Those that are clients of an API server have the options of `server_options`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click
import uvloop

from moorage.api.logs import Log
from moorage.cli.connection import context_option
from moorage.cli.errors import CliError, is_expected
from moorage.cli.factory import factory
from moorage.cli.options import LOG_LEVELS
from moorage.cluster.daemon import until_stopped
from moorage.linux.trust import UMASK
from moorage.wire.client.config import in_cluster_config, load_kubeconfig

log = Log(__name__)

_kubeconfig_option: Callable[..., Any] = click.option(
    "--kubeconfig",
    "kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Kubeconfig of the API server and of the user to be.",
)
_in_cluster_option: Callable[..., Any] = click.option(
    "--in-cluster",
    is_flag=True,
    help="Run in a pod of the cluster, as its ServiceAccount, in place of --kubeconfig.",
)
log_level_option: Callable[..., Any] = click.option(
    "--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True
)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--kubeconfig`, `--context` and `--in-cluster` to a command, which gets a `config`.

    When the command is called, raises UsageError for none or both of the first and last, and
    ConfigError for a connection that cannot be used.
    """

    @functools.wraps(command)
    def connected(
        *arguments: Any,
        kubeconfig: Path | None,
        context: str | None,
        in_cluster: bool,
        **options: Any,
    ) -> Any:
        if in_cluster == (kubeconfig is not None):
            raise click.UsageError("give one of --kubeconfig and --in-cluster")
        if in_cluster and context is not None:
            raise click.UsageError("--context names a kubeconfig's context: leave out --in-cluster")
        config = in_cluster_config() if kubeconfig is None else load_kubeconfig(kubeconfig, context)
        return command(*arguments, config=config, **options)

    wrapped: Callable[..., Any] = connected
    for option in (_in_cluster_option, context_option, _kubeconfig_option):
        wrapped = option(wrapped)
    return wrapped


def run_until_stopped(
    work: Callable[[Callable[[], None]], Coroutine[Any, Any, None]], log_level: str
) -> None:
    """Run a part, whose log goes to standard error; `work` gets what to call when it is ready.

    Under systemd it notifies when it is ready (Type=notify). Raises what a user can act on; any
    other failure is logged, and raised as CliError.
    """
    os.umask(UMASK)
    made = factory()
    service = made.service()
    made.configure_logs(log_level)
    made.calm_collector()
    try:
        uvloop.run(until_stopped(made.start_part(work, service.ready)))
    except Exception as error:
        cause = _cause(error)
        if isinstance(cause, Exception) and is_expected(cause):
            raise cause from error
        log.exception("part failed")
        raise CliError(f"ended by a fault: {cause}") from error
    finally:
        service.stopping()


def _cause(error: BaseException) -> BaseException:
    """Return the error in groups of one, the group if there are several."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
