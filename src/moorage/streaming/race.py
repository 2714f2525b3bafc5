"""Race: waits for the first of several coroutines, and cancels the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first_to_end(*running: Coroutine[Any, Any, None]) -> None:
    """Run all until one returns; raises its exception, if any, after the others have stopped."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in running]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
