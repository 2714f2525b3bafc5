"""Background tasks of an engine: exit watches, the network pool, the log rate limit."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Self

from moorage.api.logs import Log

log = Log(__name__)


class Background:
    """A group of independent tasks. `async with` cancels those that are left."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a background task. A failure is logged and affects no other task."""
        task = asyncio.create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("background task failed")
