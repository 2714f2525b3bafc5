"""Entry point of one part; the supervisor starts it and watches its readiness and its end."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from moorage.api.logs import Log, configure
from moorage.cluster.daemon import Service, calm_collector, until_stopped
from moorage.cluster.importing import import_program
from moorage.cluster.layout import Layout
from moorage.cluster.settings import SettingsError, load
from moorage.cluster.supervision.heartbeat import with_heartbeats
from moorage.cluster.supervision.supervisor import PORT_TAKEN_STATUS
from moorage.linux.log_file import LogFile
from moorage.linux.own_process import die_with_parent
from moorage.linux.trust import UMASK


def run_uvloop(work: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop, which parts without it do not import."""
    import uvloop

    uvloop.run(work)


# The event loop of each part. Not uvloop for the engine, which has to reap every child.
_LOOPS: Mapping[str, Callable[..., object]] = {
    "apiserver": run_uvloop,
    "controllers": run_uvloop,
    # Without uvloop, which would be a tenth of its memory.
    "dns": asyncio.run,
    "engine": asyncio.run,
    "node": run_uvloop,
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
    name, layout = argv[0], Layout(Path(argv[1]))
    settings = load(layout.settings)
    if settings is None:
        raise SettingsError(f"{layout.settings}: no such file; `moor up` makes it")
    os.umask(UMASK)
    die_with_parent()
    # A service manager may have started `moor up`; container runtimes must not notify it.
    Service.taken_from_environment()
    configure(settings.log_level, LogFile(layout.log(name)))
    part = import_program(f"moorage.cluster.parts.{name}")
    calm_collector()
    try:
        _LOOPS[name](until_stopped(with_heartbeats(part.run(layout, settings))))
    except Exception as error:
        log.exception("part failed", part=name)
        return status_of(error)
    return 0


def status_of(error: Exception) -> int:
    """Return the exit status of a part that failed: whether another program has its port."""
    return PORT_TAKEN_STATUS if _is_port_taken(error) else 1


def _is_port_taken(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_port_taken(inner) for inner in error.exceptions)
    return isinstance(error, OSError) and error.errno == errno.EADDRINUSE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
