"""SQLite store: one file, WAL, durable at every acknowledgement.

Writes are checked against the keys' present revisions in memory, numbered, and passed to one
writer thread; all queued writes share a transaction and its fsync (group commit). Listeners and
writers are notified only after the transaction is on disk. Reads of older states have a
connection and a thread of their own. Hot path: `put` (bench/storage.py).
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from moorage.api.logs import Log
from moorage.apiserver.storage import database
from moorage.apiserver.storage.lock import StoreLock
from moorage.apiserver.storage.loss import check_current, check_made
from moorage.apiserver.storage.mark import Mark, Recorded, accepted_path, read_mark
from moorage.apiserver.storage.reserve import RESERVE_BYTES, Reserve
from moorage.apiserver.storage.store import (
    Change,
    CompactedError,
    Damage,
    Listener,
    Page,
    RevisionConflictError,
    StoreBrokenError,
)
from moorage.apiserver.storage.writer import Write, Writer

T = TypeVar("T")

_BATCH_LIMIT = 512
COMPACTION_STEP = 2000
"""Revisions whose history is deleted in one transaction."""

# Revisions after an accepted loss start this far above the recorded one.
_LOSS_GAP = 1000

log = Log(__name__)


class _Job(msgspec.Struct, frozen=True):
    """An operation other than a write that a thread runs on its connection."""

    run: Callable[[sqlite3.Connection], Any]
    done: asyncio.Future[Any]


class SqliteStore:
    """Use as `async with SqliteStore(path) as store`. One process at a time may serve the file.

    `mark` is the file that records the identity and revision outside the database; next to the
    database by default. Raises StoreBrokenError on entry when the file is not a Moorage store,
    when another process serves it, or when it is gone or older than its mark records.
    """

    def __init__(
        self,
        path: Path,
        *,
        mark: Path | None = None,
        reserve_bytes: int = RESERVE_BYTES,
        compaction_step: int = COMPACTION_STEP,
    ) -> None:
        self._path = path
        self._mark_path = mark or path.with_name(f"{path.name}.mark")
        self._reserve = Reserve(path, reserve_bytes)
        self._compaction_step = compaction_step
        self._mark: Mark
        self._held: ExitStack
        self._loop: asyncio.AbstractEventLoop
        self._heads: dict[str, int]
        self._in_flight: dict[str, asyncio.Future[int]] = {}
        self._listeners: list[Listener] = []
        self._identity: str
        self._damage: tuple[Damage, ...]
        self._numbered: int
        self._durable: int
        self._compacted: int
        self._forgotten: int
        self._replay_floor: int
        self._file_writer: Writer
        self._to_write: queue.SimpleQueue[Write | _Job | None] = queue.SimpleQueue()
        self._to_read: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread]

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._open)
        for thread in self._threads:
            thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._to_write.put(None)
        self._to_read.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        await asyncio.to_thread(self._held.close)

    @property
    def revision(self) -> int:
        return self._durable

    @property
    def compacted(self) -> int:
        return self._compacted

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def replay_floor(self) -> int:
        return max(self._replay_floor, self._compacted)

    @property
    def damage(self) -> Sequence[Damage]:
        return self._damage

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    async def put(
        self, key: str, value: bytes, expected: int, *, may_use_reserve: bool = False
    ) -> int:
        return await self._commit(key, value, expected, False, may_use_reserve)

    async def delete(self, key: str, last: bytes, expected: int) -> int:
        return await self._commit(key, last, expected, True, True)

    async def range(
        self,
        prefix: str,
        *,
        revision: int | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> Page:
        at = self._durable if revision is None else revision
        return await self._read_since(
            at, lambda connection: database.state_at(connection, prefix, at, after, limit)
        )

    async def history(self, prefix: str, after: int) -> list[Change]:
        return await self._read_since(
            after, lambda connection: database.history(connection, prefix, after)
        )

    async def compact(self, revision: int) -> None:
        """Delete the history before a revision; earlier states can no longer be read."""
        target = min(revision, self._durable)
        # Refused before it is removed: a read that overlaps the removal checks again at its end.
        self._compacted = max(self._compacted, target)
        while self._forgotten < target:
            upto = min(target, self._forgotten + self._compaction_step)
            await self._on_writer(
                lambda _: self._file_writer.forget(self._forgotten, upto, target)  # noqa: B023
            )
            self._forgotten = upto

    async def _commit(
        self, key: str, value: bytes, expected: int, is_deletion: bool, may_use_reserve: bool
    ) -> int:
        # Writes to one key are serialized: only then is `expected` decidable.
        while (earlier := self._in_flight.get(key)) is not None:
            await asyncio.wait((earlier,))
        current = self._heads.get(key, 0)
        if current != expected:
            raise RevisionConflictError(key, expected, current)
        self._numbered += 1
        change = Change(key, self._numbered, value, current, is_deletion)
        done = self._loop.create_future()
        self._in_flight[key] = done
        self._to_write.put(Write(change, done, may_use_reserve))
        # The write completes even if its caller is cancelled; later writers wait for it.
        return await asyncio.shield(done)

    async def _read_since(self, revision: int, read: Callable[[sqlite3.Connection], T]) -> T:
        """Run a read from a revision on the reader thread. Raises CompactedError."""
        self._check_kept(revision)
        done: asyncio.Future[T] = self._loop.create_future()
        self._to_read.put(_Job(read, done))
        outcome = await done
        # States removed during the read are missing in the result.
        self._check_kept(revision)
        return outcome

    def _check_kept(self, revision: int) -> None:
        if revision < self._compacted:
            raise CompactedError(revision, self._compacted)

    async def _on_writer(self, run: Callable[[sqlite3.Connection], T]) -> T:
        done: asyncio.Future[T] = self._loop.create_future()
        self._to_write.put(_Job(run, done))
        return await done

    # The methods below run in the threads, or are called back from them on the loop.

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.callback(StoreLock.acquire(self._path).release)
            # The log is removed with the last connection; its space is kept for the next start.
            stack.callback(self._reserve.fill)
            mark, accepted = read_mark(self._mark_path), accepted_path(self._mark_path)
            check_made(self._path, self._mark_path, mark)
            lost = read_mark(accepted)
            floor = lost.revision + _LOSS_GAP if lost else 0
            try:
                loaded = self._load(stack, floor)
            except sqlite3.Error as error:
                raise StoreBrokenError(f"{self._path} cannot be opened: {error}") from error
            self._compacted, self._forgotten = loaded.compacted, loaded.forgotten
            self._durable = self._numbered = max(loaded.last, self._compacted)
            self._replay_floor = loaded.replay_floor
            self._identity, self._heads = loaded.identity, loaded.heads
            self._damage = tuple(d for d in loaded.damage if self._heads.get(d.key) == d.revision)
            for damage in loaded.damage:
                log.error("stored value is damaged", key=damage.key, revision=damage.revision)
            present = Recorded(self._identity, self._durable)
            check_current(self._path, self._mark_path, mark, present)
            if mark is None:
                self._mark = self._write_mark(present)
            else:
                self._mark = Mark.open(self._mark_path, self._identity)
            stack.callback(self._mark.close)
            accepted.unlink(missing_ok=True)
            self._held = stack.pop_all()

    def _load(self, stack: ExitStack, floor: int) -> database.Loaded:
        try:
            return self._load_once(stack, floor)
        except sqlite3.Error as error:
            # Opening a database needs disk space too, for the index of its log.
            if not (database.is_disk_full(error) and self._reserve.remove()):
                raise
        loaded = self._load_once(stack, floor)
        self._reserve.extend_log()
        return loaded

    def _load_once(self, stack: ExitStack, floor: int) -> database.Loaded:
        with ExitStack() as opened:
            writer, reader = (
                opened.enter_context(closing(database.connect(self._path))) for _ in range(2)
            )
            loaded = database.load(writer, self._path, floor)
            self._reserve.fill()
            self._file_writer = Writer(writer, self._path, self._reserve)
            if not self._reserve.is_released:
                self._file_writer.add_filler()
            self._threads = [
                threading.Thread(target=run, args=(connection,), name=name, daemon=True)
                for run, connection, name in (
                    (self._writer, writer, "store-writer"),
                    (self._reader, reader, "store-reader"),
                )
            ]
            stack.push(opened.pop_all())
        return loaded

    def _write_mark(self, present: Recorded) -> Mark:
        try:
            return Mark.write(self._mark_path, present)
        except OSError as error:
            raise StoreBrokenError(
                f"{self._mark_path}, which records that the store was made, cannot be written: "
                f"{error.strerror}"
            ) from error

    def _writer(self, connection: sqlite3.Connection) -> None:
        while (batch := take_queued(self._to_write)) is not None:
            writes = [item for item in batch if isinstance(item, Write)]
            if writes:
                self._write(writes)
            for item in batch:
                if isinstance(item, _Job):
                    self._run(connection, item)

    def _reader(self, connection: sqlite3.Connection) -> None:
        while (job := self._to_read.get()) is not None:
            self._run(connection, job)

    def _write(self, writes: list[Write]) -> None:
        for group, error in self._file_writer.append(writes):
            if error is not None:
                self._post(self._refuse, group, error)
            else:
                self._mark.record(group[-1].change.revision)
                self._post(self._acknowledge, group)

    def _run(self, connection: sqlite3.Connection, job: _Job) -> None:
        try:
            outcome = job.run(connection)
        except StoreBrokenError as error:
            self._post(_fail, job.done, error)
        except sqlite3.Error as error:
            self._post(_fail, job.done, StoreBrokenError(f"{self._path}: {error}"))
        else:
            self._post(_resolve, job.done, outcome)

    def _post(self, callback: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(callback, *arguments)

    def _acknowledge(self, writes: Sequence[Write]) -> None:
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

    def _refuse(self, writes: Sequence[Write], error: Exception) -> None:
        for write in writes:
            del self._in_flight[write.change.key]
            _fail(write.done, StoreBrokenError(f"{self._path}: {error}"))


def take_queued(items: queue.SimpleQueue[Write | _Job | None]) -> list[Write | _Job] | None:
    """Block until an item is queued and return all queued items in order; None at the end."""
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


def _resolve(done: asyncio.Future[Any], outcome: Any) -> None:
    if not done.done():
        done.set_result(outcome)


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
        # Its caller may have been cancelled: then no other code retrieves the exception.
        done.exception()
