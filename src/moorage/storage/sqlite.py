"""The store on SQLite: one file, WAL, durable at every acknowledgement.

Writes are checked against the keys' present revisions in memory, numbered, and handed to one
writer thread; all that wait there share a transaction and its fsync (group commit). A change is
announced and acknowledged only after its transaction is on disk. Reads of older states have a
connection and a thread of their own. Hot path: `put` (bench/storage.py).
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from moorage.storage.store import (
    Change,
    CompactedError,
    Entry,
    Listener,
    Page,
    RevisionConflictError,
    StoreBrokenError,
)

T = TypeVar("T")

_FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS log (
    revision INTEGER PRIMARY KEY,
    key      TEXT    NOT NULL,
    previous INTEGER NOT NULL,
    deleted  INTEGER NOT NULL,
    value    BLOB    NOT NULL
);
CREATE INDEX IF NOT EXISTS log_by_key ON log (key, revision);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""
_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA busy_timeout = 5000",
    "PRAGMA cache_size = -4096",
)
_INSERT = "INSERT INTO log (revision, key, previous, deleted, value) VALUES (?, ?, ?, ?, ?)"
# A key's state at a revision is its last change up to there.
_STATE_AT = """
SELECT key, revision, value FROM log AS change
WHERE key >= ? AND key < ? AND key > ? AND revision <= ? AND deleted = 0
  AND revision = (SELECT max(revision) FROM log WHERE key = change.key AND revision <= ?)
ORDER BY key LIMIT ?
"""
_HEADS = """
SELECT key, revision FROM log AS change
WHERE deleted = 0 AND revision = (SELECT max(revision) FROM log WHERE key = change.key)
"""
_HISTORY = """
SELECT key, revision, value, previous, deleted FROM log
WHERE revision > ? AND key >= ? AND key < ? ORDER BY revision
"""
# Within the range just given up: states that a later change replaced, then the marks of deletion.
_FORGET = (
    "DELETE FROM log WHERE revision IN"
    " (SELECT previous FROM log WHERE revision > ? AND revision <= ? AND previous > 0)",
    "DELETE FROM log WHERE revision > ? AND revision <= ? AND deleted = 1",
)
_SET_FACT = "INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)"
_BATCH_LIMIT = 512
_COMPACTION_STEP = 2000
_AFTER_EVERY_KEY = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class _Write:
    change: Change
    done: asyncio.Future[int]


@dataclass(frozen=True, slots=True)
class _Job:
    """Something other than a write that a thread does with its connection."""

    run: Callable[[sqlite3.Connection], Any]
    done: asyncio.Future[Any]


class SqliteStore:
    """Use as `async with SqliteStore(path) as store`. One process at a time may hold the file.

    Raises StoreBrokenError on entry when the file is not a store of ours.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop: asyncio.AbstractEventLoop
        self._heads: dict[str, int] = {}
        self._in_flight: dict[str, asyncio.Future[int]] = {}
        self._listeners: list[Listener] = []
        self._numbered = 0
        self._durable = 0
        self._compacted = 0
        self._to_write: queue.SimpleQueue[_Write | _Job | None] = queue.SimpleQueue()
        self._to_read: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._load)
        self._threads = [
            threading.Thread(target=self._writer, name="store-writer", daemon=True),
            threading.Thread(target=self._reader, name="store-reader", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._to_write.put(None)
        self._to_read.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    @property
    def revision(self) -> int:
        return self._durable

    @property
    def compacted(self) -> int:
        return self._compacted

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def put(self, key: str, value: bytes, expected: int) -> int:
        return await self._commit(key, value, expected, is_deletion=False)

    async def delete(self, key: str, last: bytes, expected: int) -> int:
        return await self._commit(key, last, expected, is_deletion=True)

    async def range(
        self,
        prefix: str,
        *,
        revision: int | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> Page:
        at = self._durable if revision is None else revision
        if at < self._compacted:
            raise CompactedError(at, self._compacted)
        wanted = -1 if limit is None else limit + 1
        rows = await self._read(
            _STATE_AT, (prefix, prefix + _AFTER_EVERY_KEY, after, at, at, wanted)
        )
        entries = [Entry(key, changed, value) for key, changed, value in rows[:limit]]
        return Page(at, entries, has_more=limit is not None and len(rows) > limit)

    async def history(self, prefix: str, after: int) -> list[Change]:
        if after < self._compacted:
            raise CompactedError(after, self._compacted)
        rows = await self._read(_HISTORY, (after, prefix, prefix + _AFTER_EVERY_KEY))
        return [
            Change(key, revision, value, previous, bool(deleted))
            for key, revision, value, previous, deleted in rows
        ]

    async def compact(self, revision: int) -> None:
        # In steps, so that writes get their turn in between.
        while self._compacted < min(revision, self._durable):
            upto = min(revision, self._durable, self._compacted + _COMPACTION_STEP)
            await self._on_writer(lambda connection: self._forget(connection, upto))  # noqa: B023
            self._compacted = upto

    async def _commit(self, key: str, value: bytes, expected: int, *, is_deletion: bool) -> int:
        # Writes to one key go one after the other: only then is `expected` decidable.
        while (earlier := self._in_flight.get(key)) is not None:
            await asyncio.wait((earlier,))
        current = self._heads.get(key, 0)
        if current != expected:
            raise RevisionConflictError(key, expected, current)
        self._numbered += 1
        change = Change(key, self._numbered, value, current, is_deletion)
        done = self._loop.create_future()
        self._in_flight[key] = done
        self._to_write.put(_Write(change, done))
        # The write happens even if its caller is cancelled; later writers wait for its end.
        return await asyncio.shield(done)

    async def _read(self, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        done = self._loop.create_future()
        self._to_read.put(
            _Job(lambda connection: connection.execute(statement, parameters).fetchall(), done)
        )
        rows: list[Any] = await done
        return rows

    async def _on_writer(self, run: Callable[[sqlite3.Connection], T]) -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        self._to_write.put(_Job(run, done))
        return await done

    # From here on: what runs in threads, and what they hand back to the loop.

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        return connection

    def _load(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection = self._connect()
            connection.executescript(_TABLES)
            facts = dict(connection.execute("SELECT name, value FROM facts").fetchall())
            found = facts.setdefault("format", _FORMAT)
            if found != _FORMAT:
                raise StoreBrokenError(
                    f"{self._path} has format {found}; this version reads format {_FORMAT}"
                )
            connection.execute(_SET_FACT, ("format", _FORMAT))
            self._heads = dict(connection.execute(_HEADS).fetchall())
            last = connection.execute("SELECT coalesce(max(revision), 0) FROM log").fetchone()[0]
            connection.close()
        except sqlite3.Error as error:
            raise StoreBrokenError(f"{self._path} cannot be opened: {error}") from error
        self._compacted = facts.get("compacted", 0)
        self._durable = self._numbered = max(last, self._compacted)

    def _writer(self) -> None:
        connection = self._connect()
        while (batch := _take(self._to_write)) is not None:
            writes = [item for item in batch if isinstance(item, _Write)]
            if writes:
                self._write(connection, writes)
            for item in batch:
                if isinstance(item, _Job):
                    self._run(connection, item)
        connection.close()

    def _reader(self) -> None:
        connection = self._connect()
        while (job := self._to_read.get()) is not None:
            self._run(connection, job)
        connection.close()

    def _write(self, connection: sqlite3.Connection, writes: list[_Write]) -> None:
        rows = [
            (change.revision, change.key, change.previous, change.is_deletion, change.value)
            for change in (write.change for write in writes)
        ]
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_INSERT, rows)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            self._tell(self._refuse, writes, error)
        else:
            self._tell(self._acknowledge, writes)

    def _forget(self, connection: sqlite3.Connection, upto: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in _FORGET:
                connection.execute(statement, (self._compacted, upto))
            connection.execute(_SET_FACT, ("compacted", upto))
            connection.execute("COMMIT")
        except sqlite3.Error:
            _roll_back(connection)
            raise

    def _run(self, connection: sqlite3.Connection, job: _Job) -> None:
        try:
            outcome = job.run(connection)
        except sqlite3.Error as error:
            self._tell(_fail, job.done, StoreBrokenError(str(error)))
        else:
            self._tell(_resolve, job.done, outcome)

    def _tell(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(callback, *arguments)

    def _acknowledge(self, writes: list[_Write]) -> None:
        for write in writes:
            change = write.change
            if change.is_deletion:
                self._heads.pop(change.key, None)
            else:
                self._heads[change.key] = change.revision
            del self._in_flight[change.key]
        self._durable = writes[-1].change.revision
        changes = [write.change for write in writes]
        for listener in self._listeners:
            listener(changes)
        for write in writes:
            _resolve(write.done, write.change.revision)

    def _refuse(self, writes: list[_Write], error: Exception) -> None:
        for write in writes:
            del self._in_flight[write.change.key]
            _fail(write.done, StoreBrokenError(f"{self._path}: {error}"))


def _take(items: queue.SimpleQueue[_Write | _Job | None]) -> list[_Write | _Job] | None:
    """Wait for something to do, then take all that waits, in order; None at the end."""
    first = items.get()
    if first is None:
        return None
    batch = [first]
    while len(batch) < _BATCH_LIMIT:
        try:
            item = items.get_nowait()
        except queue.Empty:
            break
        if item is None:
            items.put(None)
            break
        batch.append(item)
    return batch


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _resolve(done: asyncio.Future[Any], outcome: Any) -> None:
    if not done.done():
        done.set_result(outcome)


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
