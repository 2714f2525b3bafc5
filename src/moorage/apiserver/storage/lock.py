"""Lock file of a store: one process at a time serves a database.

The lock is flock(2)'s and belongs to the open file, so the kernel releases it however its holder
exits, and a stopped (SIGSTOP) holder keeps it. SQLite's own locks last for a transaction only, and
closing any descriptor of the database would release a POSIX lock on it: hence a file of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
from pathlib import Path
from typing import Self

from moorage.apiserver.storage.store import StoreBrokenError

_ENDING_S = 2.0


class StoreLock:
    """The exclusive right to serve a database, held until `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, database: Path) -> Self:
        """Lock a database. Blocks briefly while a holder that is being killed exits.

        Raises StoreBrokenError naming the process that already serves it.
        """
        path = database.with_name(f"{database.name}.lock")
        has_waited = False
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_current = _is_same(path, descriptor)
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                os.close(descriptor)
                if not has_waited and _has_ended(holder, _ENDING_S):
                    has_waited = True
                    continue
                raise StoreBrokenError(
                    f"{database} is in use by process {holder or '(unknown)'}, which holds the "
                    f"lock {path}; stop that process, then start again"
                ) from None
            except BaseException:
                os.close(descriptor)
                raise
            if is_current:
                break
            os.close(descriptor)  # Replaced between open and lock.
        pid = f"{os.getpid()}\n".encode()
        # On a full disk the lock holds; only the error text of other processes lacks the PID.
        with contextlib.suppress(OSError):
            # Overwritten before it is truncated: a full disk has no new block for it.
            os.pwrite(descriptor, pid, 0)
            os.ftruncate(descriptor, len(pid))
        return cls(descriptor)

    def release(self) -> None:
        os.close(self._descriptor)


def _has_ended(holder: str, within_s: float) -> bool:
    """Return whether a process (PID as text) exits in time; False for this process."""
    if not holder.isdigit() or int(holder) == os.getpid():
        return False
    try:
        descriptor = os.pidfd_open(int(holder))
    except (ProcessLookupError, OverflowError):
        return True
    try:
        return bool(select.select([descriptor], [], [], within_s)[0])
    finally:
        os.close(descriptor)


def _is_same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
