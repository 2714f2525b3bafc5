"""API calls under way: many at once, but for one pod one after the other, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

Call = Callable[[], Awaitable[None]]


class ApiDispatcher:
    """Runs calls by `workers` workers; calls under one key never overtake each other."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._limit = 4 * workers
        self._lines: dict[str, deque[Call]] = {}
        self._ready: deque[str] = deque()
        self._count = 0
        self._has_ready = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def submit(self, key: str, call: Call) -> None:
        """Have a call made after those already submitted under the key."""
        self._count += 1
        if self._count >= self._limit:
            self._has_room.clear()
        line = self._lines.get(key)
        if line is not None:
            line.append(call)
            return
        self._lines[key] = deque((call,))
        self._ready.append(key)
        self._has_ready.set()

    async def room(self) -> None:
        """Return when few enough calls wait. Who decides waits here, so the queue is bounded."""
        await self._has_room.wait()

    async def run(self) -> None:
        """Make the calls until cancelled. A call that raises ends the scheduler."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._workers):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            while not self._ready:
                self._has_ready.clear()
                await self._has_ready.wait()
            key = self._ready.popleft()
            try:
                await self._lines[key][0]()
            finally:
                self._finish(key)

    def _finish(self, key: str) -> None:
        line = self._lines[key]
        line.popleft()
        if line:
            # The worker that ends here takes what is ready before it waits.
            self._ready.append(key)
        else:
            del self._lines[key]
        self._count -= 1
        if self._count < self._limit:
            self._has_room.set()
