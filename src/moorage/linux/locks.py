"""Lock files: one process at a time creates, changes or stops a cluster."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

_POLL_S = 0.05


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold an exclusive flock on a file; blocks until it is free.

    The kernel releases it however the process ends. Raises OSError if the file cannot be created.
    """
    with _opened(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@asynccontextmanager
async def exclusive_async(path: Path) -> AsyncIterator[None]:
    """Hold the same lock as `exclusive`; waits for it without blocking the event loop.

    Raises OSError if the file cannot be created.
    """
    with _opened(path) as lock:
        # Polls: nothing announces a lock, and a thread blocked in flock cannot be cancelled.
        while not _is_taken(lock.fileno()):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        yield


def _opened(path: Path) -> IO[bytes]:
    """Open a lock file, which its owner alone can: a reader could hold its lock."""
    lock = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb")
    status = os.fstat(lock.fileno())
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        os.fchmod(lock.fileno(), 0o600)
    return lock


def _is_taken(descriptor: int) -> bool:
    """Try to take the lock. Return False while another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
