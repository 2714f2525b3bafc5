"""Daemon processes: signals cancel the work, memory stays small, systemd is notified.

The service manager's socket is removed from the environment, so that no container inherits it.
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
# runc would pass our socket or our descriptors on to a container.
_SERVICE_VARIABLES = (
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "WATCHDOG_USEC",
)

log = Log(__name__)


class Service:
    """The service manager that started this process, if one did. Source: sd_notify(3)."""

    def __init__(self, address: str = "") -> None:
        self._address = address

    @classmethod
    def taken_from_environment(cls) -> Service:
        """Return the service manager that the environment names, and remove its variables."""
        variables = {name: os.environ.pop(name, "") for name in _SERVICE_VARIABLES}
        return cls(variables["NOTIFY_SOCKET"])

    def ready(self) -> None:
        """Notify the service manager that the service is ready. Logs a failure."""
        self._notify(b"READY=1")

    def stopping(self) -> None:
        """Notify the service manager that the service is stopping. Logs a failure."""
        self._notify(b"STOPPING=1")

    def _notify(self, state: bytes) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notice:
            try:
                notice.sendto(state, address)
            except OSError as error:
                log.warning(
                    "service manager cannot be notified", socket=self._address, reason=error
                )


def calm_collector() -> None:
    """Exempt imported modules from garbage collection, and collect cycles less often."""
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run the work until it ends, or until SIGTERM or SIGINT cancels it.

    Returns normally after a signal. Raises what the work raises.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        log.info("stopped")
