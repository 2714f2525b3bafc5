"""A clock that the test moves."""

from __future__ import annotations

import asyncio
import heapq
from datetime import UTC, datetime, timedelta

_START = datetime(2026, 1, 1, tzinfo=UTC)


class FakeClock:
    """Time stands still until `advance`; sleepers wake when it passes them."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._count = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return _START + timedelta(seconds=self._now_s)

    def monotonic(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
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
