"""Session deadlines, and the idle timer.

An unused session holds a connection on every host that it passes; these limits end it. Source: the
kubelet's and the CRI streaming library's defaults (30 s to create the streams, 4 h idle).
"""

from __future__ import annotations

import asyncio

import msgspec

from moorage.api.clock import Clock, SystemClock, sleep_unless_set


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines in seconds.

    `half_open_s` limits the silence of one side after the other has closed, `drain_s` that of the
    output of a process that has exited.
    """

    dial_s: float = 30.0
    stream_creation_s: float = 30.0
    idle_s: float = 4 * 3600.0
    half_open_s: float = 60.0
    close_s: float = 5.0
    drain_s: float = 2.0


class IdleTimer:
    """Expires after `limit_s` without traffic. `touch` restarts it."""

    def __init__(self, limit_s: float, clock: Clock | None = None) -> None:
        self._limit_s = limit_s
        self._clock = clock or SystemClock()
        self._tightened = asyncio.Event()
        self.touch()

    def touch(self) -> None:
        """Restart the timer: there was traffic."""
        self._last = self._clock.monotonic()

    def tighten(self, limit_s: float) -> None:
        """Restart the timer with a lower limit; a higher one is ignored."""
        self._limit_s = min(self._limit_s, limit_s)
        self.touch()
        self._tightened.set()

    async def expired(self) -> None:
        """Block until the limit has passed without traffic."""
        while (remaining := self._last + self._limit_s - self._clock.monotonic()) > 0:
            self._tightened.clear()
            await sleep_unless_set(self._clock, remaining, self._tightened)
