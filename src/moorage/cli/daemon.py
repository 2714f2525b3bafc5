"""Commands that run one part in the foreground, as `moor engine` does, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click
import uvloop

from moorage.api.logs import Log, configure
from moorage.cli.errors import CliError, is_expected
from moorage.cli.options import LOG_LEVELS
from moorage.client import ClientConfig, load_kubeconfig
from moorage.cluster.daemon import Service, calm_collector, until_stopped
from moorage.linux.private import UMASK

log = Log(__name__)

kubeconfig_option: Callable[..., Any] = click.option(
    "--kubeconfig",
    "kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    help="Kubeconfig of the API server and of the user to be.",
)
log_level_option: Callable[..., Any] = click.option(
    "--log-level", type=click.Choice(LOG_LEVELS), default="info", show_default=True
)


def read_config(kubeconfig: Path, context: str | None) -> ClientConfig:
    """Return the connection that a kubeconfig's context names. Raises ConfigError."""
    return load_kubeconfig(kubeconfig, context)


def run_until_stopped(
    work: Callable[[Callable[[], None]], Coroutine[Any, Any, None]], log_level: str
) -> None:
    """Run a part, whose log goes to standard error; `work` gets what to call when it is ready.

    Under systemd it notifies when it is ready (Type=notify). Raises what a user can act on; any
    other failure is logged, and raised as CliError.
    """
    os.umask(UMASK)
    service = Service.taken_from_environment()
    configure(log_level)
    calm_collector()
    try:
        uvloop.run(until_stopped(work(service.ready)))
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
