"""Disk space kept back for deletions: without it a full disk could never be emptied.

A deletion is an insert into the log. The space is held twice: by a filler within the database,
whose pages become free for rows, and by a file beside it, whose blocks are for what the log still
has to move into the database, or for the log itself at a start. When a write finds the disk full
both are given up, and only writes that lead to less are taken until there is room again. What is
inside SQLite's files no other program can take meanwhile.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

RESERVE_BYTES = 6 * 1024 * 1024

_MARGIN_BYTES = 128 * 1024


class Reserve:
    """The file of one database's reserve. All methods block."""

    def __init__(self, database: Path, size: int = RESERVE_BYTES) -> None:
        self._path = database.with_name(f"{database.name}.reserve")
        self._log = database.with_name(f"{database.name}-wal")
        self.size = size
        self.is_released = True
        """Whether nothing is kept back: the disk is full, or was until a moment ago."""

    def fill(self) -> None:
        """Allocate the file at open; with less than its size free the disk counts as full."""
        self._fill(self.size)

    def refill(self) -> None:
        """Allocate the file again once there is room for twice its size."""
        self._fill(2 * self.size)

    def release(self) -> bool:
        """Give the space to the database; False if it was given before."""
        if self.is_released:
            return False
        self.is_released = True
        return self.remove()

    def extend_log(self) -> None:
        """Give the blocks of the removed file to the write-ahead log, as far as they are free."""
        try:
            descriptor = os.open(self._log, os.O_RDWR)
        except OSError:
            return
        try:
            end = os.fstat(descriptor).st_size
            # Zeros behind the last frame are no frames: SQLite overwrites them as it grows. A
            # margin is left for what else the database needs, such as the index of the log.
            size = min(self.size, shutil.disk_usage(self._log.parent).free) - _MARGIN_BYTES
            if size > 0:
                os.posix_fallocate(descriptor, end, size)
        except OSError:
            return
        finally:
            os.close(descriptor)

    def remove(self) -> bool:
        """Remove the file; False if there was none."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True

    def _fill(self, needed: int) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return
        try:
            held = os.fstat(descriptor).st_blocks * 512
            if held < self.size and shutil.disk_usage(self._path.parent).free < needed:
                self.remove()
                return
            os.posix_fallocate(descriptor, 0, self.size)
            self.is_released = False
        except OSError:
            # A part of a reserve would only take what is left.
            self.remove()
        finally:
            os.close(descriptor)
