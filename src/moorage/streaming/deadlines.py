"""How long an interactive session may wait, and the timer of its silence.

A session that nobody uses holds a connection on every machine it crosses; these limits end it.
Source: the kubelet's and the CRI streaming library's defaults (30 s to create the streams, 4 h
idle).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from moorage.api.clock import Clock, SystemClock, sleep_unless_set


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds. `half_open_s` bounds the silence of one side after the other has ended, `drain_s`
    that of the output of a process that has ended.
    """

    dial_s: float = 30.0
    stream_creation_s: float = 30.0
    idle_s: float = 4 * 3600.0
    half_open_s: float = 60.0
    close_s: float = 5.0
    drain_s: float = 2.0


class IdleTimer:
    """Notices that nothing has passed for a while. Whoever passes bytes calls `touch`."""

    def __init__(self, limit_s: float, clock: Clock | None = None) -> None:
        self._limit_s = limit_s
        self._clock = clock or SystemClock()
        self._tightened = asyncio.Event()
        self.touch()

    def touch(self) -> None:
        """Something has passed just now."""
        self._last = self._clock.monotonic()

    def tighten(self, limit_s: float) -> None:
        """Allow no more silence than that from now on."""
        self._limit_s = min(self._limit_s, limit_s)
        self.touch()
        self._tightened.set()

    async def expired(self) -> None:
        """Return once the limit has passed without a touch."""
        while (remaining := self._last + self._limit_s - self._clock.monotonic()) > 0:
            self._tightened.clear()
            await sleep_unless_set(self._clock, remaining, self._tightened)
