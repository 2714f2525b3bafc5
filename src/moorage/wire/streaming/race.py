"""Race of coroutines: waits for the first to end, and cancels the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_to_end(*running: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until the first ends, then cancel the others and wait for them.

    Raises the exception of the one that ended, if any. Exceptions of the cancelled ones are
    dropped.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in running]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
