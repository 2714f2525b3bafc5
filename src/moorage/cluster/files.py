"""Files that hold secrets, and files that say whose turn it is."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.linux.atomic_file import replace_file


def write_private(path: Path, content: bytes) -> None:
    """Put a file in place whole, readable by its owner only."""
    replace_file(path, content, is_synced=True)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Be the only one in here with that file; another process is waited for.

    The kernel gives the lock back however the process ends. Raises OSError when the file cannot be
    made.
    """
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
