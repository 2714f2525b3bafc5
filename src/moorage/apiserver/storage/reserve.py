"""Disk reserve for deletions: without it a full disk could never be emptied.

A deletion is an insert into the log. The space is held twice: by a filler within the database,
whose pages become free for rows, and by a file next to it, whose blocks serve the checkpoint of the
log, or the log itself at a start. When a write finds the disk full, both are released, and only
writes that free space are accepted until there is room again. No other program can take the space
inside SQLite's files meanwhile.
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
        """Whether the reserve is in use: the disk is full, or was until recently."""

    def fill(self) -> None:
        """Allocate the file at open; with less than its size free the disk counts as full."""
        self._fill(self.size)

    def refill(self) -> None:
        """Allocate the file again once there is room for twice its size."""
        self._fill(2 * self.size)

    def release(self) -> bool:
        """Remove the file for the database's use. Returns False if already released."""
        if self.is_released:
            return False
        self.is_released = True
        return self.remove()

    def extend_log(self) -> None:
        """Extend the write-ahead log by the blocks of the removed file, as far as they are free."""
        try:
            descriptor = os.open(self._log, os.O_RDWR)
        except OSError:
            return
        try:
            end = os.fstat(descriptor).st_size
            # Zeros after the last frame are no frames: SQLite overwrites them as the log grows. A
            # margin is left for other files of the database, such as the index of the log.
            size = min(self.size, shutil.disk_usage(self._log.parent).free) - _MARGIN_BYTES
            if size > 0:
                os.posix_fallocate(descriptor, end, size)
        except OSError:
            return
        finally:
            os.close(descriptor)

    def remove(self) -> bool:
        """Remove the file. Returns False if there was none, or it cannot be removed."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def _fill(self, needed: int) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return
        try:
            allocated = os.fstat(descriptor).st_blocks * 512
            if allocated < self.size and shutil.disk_usage(self._path.parent).free < needed:
                self.remove()
                return
            os.posix_fallocate(descriptor, 0, self.size)
            self.is_released = False
        except OSError:
            # A partial reserve would only use up the remaining space.
            self.remove()
        finally:
            os.close(descriptor)
