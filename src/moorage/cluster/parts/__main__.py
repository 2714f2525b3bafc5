"""Entry point of one part; the supervisor starts it and watches its readiness and its end."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import uvloop

from moorage.api.logs import Log, configure
from moorage.cluster.daemon import Service, calm_collector, until_stopped
from moorage.cluster.importing import import_program
from moorage.cluster.layout import Layout
from moorage.cluster.settings import SettingsError, load
from moorage.cluster.supervision.heartbeat import send_heartbeats
from moorage.cluster.supervision.supervisor import PORT_TAKEN_STATUS
from moorage.linux.log_file import LogFile
from moorage.linux.parent_death import die_with_parent
from moorage.linux.trust import UMASK

# The event loop of each part. Not uvloop for the engine, which has to reap every child.
_LOOPS: Mapping[str, Callable[..., object]] = {
    "apiserver": uvloop.run,
    "controllers": uvloop.run,
    "engine": asyncio.run,
    "node": uvloop.run,
}
_USAGE_STATUS = 2

log = Log(__name__)


def main(argv: list[str]) -> int:
    """Run the part of that name until SIGTERM or SIGINT. Return the exit status.

    Raises SettingsError if the data directory has no settings, or damaged ones.
    """
    if len(argv) != 2 or argv[0] not in _LOOPS:
        print(
            f"usage: python -m moorage.cluster.parts {'|'.join(_LOOPS)} DATA_DIR", file=sys.stderr
        )
        return _USAGE_STATUS
    os.umask(UMASK)
    die_with_parent()
    # A service manager may have started `moor up`; container runtimes must not notify it.
    Service.taken_from_environment()
    name, layout = argv[0], Layout(Path(argv[1]))
    settings = load(layout.settings)
    if settings is None:
        raise SettingsError(f"{layout.settings}: no such file; `moor up` makes it")
    configure(settings.log_level, LogFile(layout.log(name)))
    part = import_program(f"moorage.cluster.parts.{name}")
    calm_collector()
    try:
        _LOOPS[name](until_stopped(_with_heartbeats(part.run(layout, settings))))
    except Exception as error:
        log.exception("part failed", part=name)
        return PORT_TAKEN_STATUS if _is_port_taken(error) else 1
    return 0


def _is_port_taken(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_port_taken(inner) for inner in error.exceptions)
    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE


async def _with_heartbeats(work: Coroutine[Any, Any, None]) -> None:
    """Run the work, and send heartbeats to the supervisor meanwhile."""
    beats = asyncio.ensure_future(send_heartbeats())
    # Lets it copy the pipe's descriptor before the work can report readiness.
    await asyncio.sleep(0)
    try:
        await work
    finally:
        beats.cancel()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
