"""Writer of a store's file: changes in groups, a log that stays short, room on a full disk.

All calls are made in the writer thread, which owns the connection. On a full disk the reserve is
released, so that deletions are accepted until space is freed. Hot path: `append`
(bench/storage.py).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from moorage.api.logs import Log
from moorage.apiserver.storage import database
from moorage.apiserver.storage.store import Change

_PAGE_BYTES = 4096
# Pages that a transaction adds to the log besides its values.
_BATCH_PAGES = 4
_CHECKPOINT_BYTES = 4 * 1024 * 1024

log = Log(__name__)


class Write(msgspec.Struct, frozen=True):
    """A change to append; `done` gets its revision once it is durable."""

    change: Change
    done: asyncio.Future[int]
    may_use_reserve: bool


class File(Protocol):
    """The operations on a store's file: those of `database`."""

    def append(self, connection: sqlite3.Connection, changes: Iterable[Change], /) -> None: ...
    def forget(
        self, connection: sqlite3.Connection, after: int, upto: int, compacted: int, /
    ) -> None: ...
    def checkpoint(self, connection: sqlite3.Connection, /) -> bool: ...
    def add_filler(self, connection: sqlite3.Connection, size: int, /) -> None: ...
    def drop_filler(self, connection: sqlite3.Connection, /) -> bool: ...
    def free_bytes(self, connection: sqlite3.Connection, /) -> int: ...


class KeptSpace(Protocol):
    """The space beside the file that is kept for a full disk: a `Reserve`."""

    @property
    def size(self) -> int: ...
    @property
    def is_released(self) -> bool: ...
    def refill(self) -> None: ...
    def release(self) -> bool: ...
    def extend_log(self) -> None: ...


class Writer:
    """Appends to one store's file, on a connection of its own."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        reserve: KeptSpace,
        *,
        file: File = database,
    ) -> None:
        self._connection = connection
        self._path = path
        self._reserve = reserve
        self._file = file
        self.logged = 0
        """Approximate bytes in the write-ahead log since its last checkpoint."""

    def append(self, writes: Sequence[Write]) -> Iterator[tuple[Sequence[Write], Exception | None]]:
        """Append writes in one transaction. Yields those that are durable, and those refused with
        the error; what follows a yield, such as a checkpoint, is nothing to wait for."""
        if self._reserve.is_released:
            try:
                writes, refused = self._allowed(writes)
            except sqlite3.Error as error:
                yield writes, error
                return
            if refused:
                yield (
                    refused,
                    OSError("the disk is full; only deletions are accepted until space is freed"),
                )
        if not writes:
            return
        try:
            self._file.append(self._connection, [write.change for write in writes])
        except sqlite3.Error as error:
            if database.is_disk_full(error) and self._make_room():
                yield from self.append(writes)
            else:
                yield writes, error
        else:
            yield writes, None
            self._checkpoint(sum(len(write.change.value) for write in writes))

    def forget(self, after: int, upto: int, compacted: int) -> None:
        """Delete history, in the reserve where the disk is full. Raises sqlite3.Error."""
        try:
            self._file.forget(self._connection, after, upto, compacted)
        except sqlite3.Error as error:
            if not (database.is_disk_full(error) and self._make_room()):
                raise
            self._file.forget(self._connection, after, upto, compacted)

    def add_filler(self) -> None:
        """Keep a reserve within the file. A failure is logged: the reserve beside it is left."""
        try:
            self._file.add_filler(self._connection, self._reserve.size)
        except sqlite3.Error as error:
            log.warning("no reserve is kept within the database", error=error)

    def _allowed(self, writes: Sequence[Write]) -> tuple[Sequence[Write], Sequence[Write]]:
        """Return the writes allowed while the reserve is released, and the others.

        Raises sqlite3.Error.
        """
        self._reserve.refill()
        if not self._reserve.is_released:
            self.add_filler()
            return writes, ()
        if self._file.free_bytes(self._connection) >= 2 * self._reserve.size:
            return writes, ()
        return (
            [write for write in writes if write.may_use_reserve],
            [write for write in writes if not write.may_use_reserve],
        )

    def _make_room(self) -> bool:
        """Release the reserve and restart the log. Returns False if that freed no space.

        The log is extended at once, before another program takes the space.
        """
        was_kept = self._reserve.release()
        if was_kept:
            log.error("disk is full: only deletions are accepted until space is freed")
        try:
            had_log = self.logged > 0 and self._file.checkpoint(self._connection)
            if was_kept:
                self._reserve.extend_log()
            self.logged = 0 if had_log else self.logged
            return self._file.drop_filler(self._connection) or was_kept or had_log
        except sqlite3.Error as error:
            log.error("the disk is full and the store has no reserve left", error=error)
            return was_kept

    def _checkpoint(self, written: int) -> None:
        """Checkpoint the log when it has grown enough; `written` is the bytes of values added."""
        self.logged += written + _BATCH_PAGES * _PAGE_BYTES
        if self.logged < _CHECKPOINT_BYTES:
            return
        try:
            is_whole = self._file.checkpoint(self._connection)
        except sqlite3.Error as error:
            # No data is lost: the log keeps growing, and the next checkpoint moves all of it.
            log.warning("checkpoint failed", path=self._path, error=error)
            is_whole = False
        self.logged = 0 if is_whole else _CHECKPOINT_BYTES // 2
