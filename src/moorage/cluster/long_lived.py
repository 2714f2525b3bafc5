"""What the processes of ours that stay have in common.

Signals cancel the work, memory is kept small, and a service manager that started the process hears
how it is without the containers' runtimes hearing of the service manager.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
from collections.abc import Coroutine
from typing import Any

from moorage.api.logs import Log

_COLLECTOR_THRESHOLDS = (20_000, 20, 50)
# Runtimes take these for their own: runc would hand a container our socket, or our descriptors.
_OURS_ALONE = ("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID", "WATCHDOG_USEC")

log = Log(__name__)


class Service:
    """The service manager that started this process, if one did. Source: sd_notify(3)."""

    def __init__(self, address: str = "") -> None:
        self._address = address

    @classmethod
    def taken_from_environment(cls) -> Service:
        """The one that the environment names; what it names is in the environment no more."""
        taken = {name: os.environ.pop(name, "") for name in _OURS_ALONE}
        return cls(taken["NOTIFY_SOCKET"])

    def ready(self) -> None:
        """Tell it that the work has begun."""
        self._tell(b"READY=1")

    def stopping(self) -> None:
        """Tell it that the work is being ended."""
        self._tell(b"STOPPING=1")

    def _tell(self, state: bytes) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice:
            try:
                notice.sendto(state, address)
            except OSError as error:
                log.warning("service manager cannot be told", socket=self._address, reason=error)


def calm_collector() -> None:
    """What was imported is never garbage; looking for circles less often saves time."""
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Do the work until it ends, or SIGTERM or SIGINT cancels it, which is no failure."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log.info("stopped")
