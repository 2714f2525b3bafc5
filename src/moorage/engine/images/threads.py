"""Blocking work off the event loop that is not left behind by a cancellation.

A thread cannot be broken off. Whoever cleans up after a cancelled call must know that the work has
ended: an unmount before the mount would leave the mount.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Words = ParamSpec("Words")
Result = TypeVar("Result")


async def in_thread(
    work: Callable[Words, Result], *words: Words.args, **named: Words.kwargs
) -> Result:
    """The result of work done in a thread; a cancellation is passed on after the work has ended.

    Raises what the work raises.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *words, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # It is a few system calls, or the copy of a tree at the worst: it ends.
        await asyncio.wait((running,))
        raise
