"""Completion of cleanup work that a cancellation must not cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end and return its result.

    Raises what `work` raises; otherwise CancelledError if this call was cancelled meanwhile.
    """
    task = asyncio.ensure_future(work)
    is_cancelled = False
    while not task.done():
        try:
            # Neither cancels the task nor raises its error, unlike an await of it.
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled and (task.cancelled() or task.exception() is None):
        raise asyncio.CancelledError
    return task.result()
