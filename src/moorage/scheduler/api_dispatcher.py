"""API call dispatcher: concurrent calls, serialized in submission order per pod."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

Call = Callable[[], Awaitable[None]]


class ApiDispatcher:
    """Runs calls on `workers` workers; calls under one key run one at a time, in order."""

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
        """Queue a call behind those already submitted under the key. Does not block."""
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
        """Block until fewer than four calls per worker are outstanding.

        The scheduling loop waits here between decisions, which bounds the queue.
        """
        await self._has_room.wait()

    async def run(self) -> None:
        """Run the calls until cancelled. An exception from a call ends the scheduler."""
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
            # No event needed: the worker that runs this checks `_ready` before it waits.
            self._ready.append(key)
        else:
            del self._lines[key]
        self._count -= 1
        if self._count < self._limit:
            self._has_room.set()
