"""Blocking work in threads that completes before a cancellation is passed on.

A thread cannot be cancelled. Cleanup after a cancelled call must run after the work: an unmount
before the mount would leave it mounted.
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
    """Run work in a thread. Returns its result; a cancellation is raised after the work has ended.

    Raises what the work raises.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *words, **named))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # It is a few system calls, at most the copy of a tree: it ends.
        await asyncio.wait((running,))
        raise
