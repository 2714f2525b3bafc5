"""What runs beside the calls, for as long as the engine lives: watches, networks in advance."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Self

from moorage.api.logs import Log

log = Log(__name__)


class Background:
    """A group of tasks of which none ends the others. `async with` cancels what is left."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside everything else. What it fails with is logged: one container's trouble."""
        task = asyncio.create_task(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("work beside the calls failed")
