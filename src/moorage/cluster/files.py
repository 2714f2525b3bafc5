"""Files that hold secrets, and files that say whose turn it is."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Put a file in place whole, readable by its owner only."""
    scratch = path.with_name(f".{path.name}.new")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Be the only one in here with that file; another process is waited for.

    The kernel gives the lock back however the process ends. Raises OSError when the file cannot be
    made.
    """
    with open(path, "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
