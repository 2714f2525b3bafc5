"""Clocks of tests: one that the test moves, and one that runs faster than the system's."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta

from moorage.api.clock import SystemClock

START = datetime(2026, 1, 1, tzinfo=UTC)
START_S = START.timestamp()
START_NS = int(START_S) * 1_000_000_000


class FakeClock:
    """Time stands still until `advance`; sleepers wake when it passes them."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._count = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return START + timedelta(seconds=self._now_s)

    def monotonic(self) -> float:
        return self._now_s

    @property
    def next_s(self) -> float | None:
        """Seconds until the first sleeper wakes, None when no one sleeps."""
        waiting = [due for due, _, future in self._sleepers if not future.done()]
        return min(waiting) - self._now_s if waiting else None

    @property
    def slept(self) -> int:
        """How often something began to sleep."""
        return self._count

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now_s + seconds, self._count, future))
        await future

    def advance(self, seconds: float) -> None:
        self._now_s += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now_s:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)


class QuickClock(SystemClock):
    """A clock of which a hundred seconds pass in each of the system's."""

    _SPEED = 100

    def __init__(self) -> None:
        self._began_s = super().monotonic()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return (super().monotonic() - self._began_s) * self._SPEED

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self._SPEED)


async def settle(turns: int = 20) -> None:
    """Let everything that can go on without time passing go on."""
    for _ in range(turns):
        await asyncio.sleep(0)
