"""Lock files: one process at a time creates, changes or stops a cluster."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

_POLL_S = 0.05


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold an exclusive flock on a file; blocks until it is free.

    The kernel releases it however the process ends. Raises OSError if the file cannot be created.
    """
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@asynccontextmanager
async def exclusive_async(path: Path) -> AsyncIterator[None]:
    """Hold the same lock as `exclusive`; waits for it without blocking the event loop.

    Raises OSError if the file cannot be created.
    """
    with open(path, "a") as lock:  # noqa: ASYNC230 - an empty file
        # Polls: nothing announces a lock, and a thread blocked in flock cannot be cancelled.
        while not _is_taken(lock.fileno()):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        yield


def _is_taken(descriptor: int) -> bool:
    """Try to take the lock. Return False while another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
