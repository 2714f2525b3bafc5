"""Idle gate: delays background work until no pod is being started."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from moorage.api.clock import Clock


class IdleGate:
    """Tracks the calls of pod starts. A start is several calls with short pauses between."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way = 0
        self._last_s = clock.monotonic()
        self._ended = asyncio.Event()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Mark a call that a pod's start waits for, while the block lasts."""
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._last_s = self._clock.monotonic()
            self._ended.set()

    async def wait(self, length_s: float) -> None:
        """Block until there has been no such call for `length_s`. No deadline: starts have
        priority.
        """
        while True:
            self._ended.clear()
            if self._under_way:
                await self._ended.wait()
                continue
            missing_s = self._last_s + length_s - self._clock.monotonic()
            if missing_s <= 0:
                return
            await self._clock.sleep(missing_s)
