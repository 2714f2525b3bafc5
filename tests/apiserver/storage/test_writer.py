"""What the writer decides: when the log starts over, and what a full disk is given."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.storage.mark import Mark, Recorded, mark_content, read_mark
from moorage.apiserver.storage.sqlite import SqliteStore
from moorage.apiserver.storage.store import Change, StoreBrokenError
from moorage.apiserver.storage.writer import Write, Writer

MIB = 1024 * 1024
# Of a transaction with values of no size.
PAGES = 4 * 4096
NONE: Any = None


def full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


LOCKED = sqlite3.OperationalError("locked")


class FakeDisk:
    """A store's file and its reserve: keeps the steps, and has the errors that a test gives it."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.is_whole = True
        self.checkpoint_error: sqlite3.Error | None = None
        self.filler_error: sqlite3.Error | None = None
        self.has_filler = True
        self.had_reserve = True
        self.free = 0
        self.free_error: sqlite3.Error | None = None
        self.refills = False
        self.errors: list[sqlite3.Error] = []
        self.size = 1000
        self.is_released = False

    def checkpoint(self, _connection: object) -> bool:
        self.steps.append("checkpoint")
        if self.checkpoint_error is not None:
            raise self.checkpoint_error
        return self.is_whole

    def drop_filler(self, _connection: object) -> bool:
        self.steps.append("drop")
        if self.filler_error is not None:
            raise self.filler_error
        return self.has_filler

    def add_filler(self, _connection: object, size: int) -> None:
        self.steps.append(f"filler {size}")
        if self.filler_error is not None:
            raise self.filler_error

    def free_bytes(self, _connection: object) -> int:
        if self.free_error is not None:
            raise self.free_error
        return self.free

    def append(self, _connection: object, changes: Iterable[Change]) -> None:
        self.steps.append(f"append {' '.join(change.key for change in changes)}")
        if self.errors:
            raise self.errors.pop(0)

    def forget(self, _connection: object, after: int, upto: int, compacted: int) -> None:
        self.steps.append(f"forget {after} {upto} {compacted}")
        if self.errors:
            raise self.errors.pop(0)

    def release(self) -> bool:
        self.steps.append("release")
        self.is_released = True
        return self.had_reserve

    def refill(self) -> None:
        self.steps.append("refill")
        self.is_released = not self.refills

    def extend_log(self) -> None:
        self.steps.append("extend")


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


@pytest.fixture
def writer(disk: FakeDisk) -> Writer:
    return Writer(NONE, Path("state.db"), disk, file=disk)


def write(key: str, *, may_use_reserve: bool = False, size: int = 0, revision: int = 7) -> Write:
    return Write(Change(key, revision, b"x" * size, 0, False), NONE, may_use_reserve)


def append(writer: Writer, *writes: Write) -> list[tuple[str, Exception | None]]:
    """Append writes and return the keys of each group, with the error of one that was refused."""
    return [
        ("".join(write.change.key for write in group), error)
        for group, error in writer.append(writes)
    ]


@pytest.mark.parametrize(
    ("before", "written", "steps", "after"),
    [
        (0, 0, [], PAGES),
        (0, 100, [], PAGES + 100),
        (4 * MIB - PAGES - 1, 0, [], 4 * MIB - 1),
        (4 * MIB - PAGES - 1, 1, ["checkpoint"], 0),
        (0, 5 * MIB, ["checkpoint"], 0),
    ],
)
def test_the_log_is_checkpointed_once_it_has_grown_enough(
    disk: FakeDisk, writer: Writer, before: int, written: int, steps: list[str], after: int
) -> None:
    writer.logged = before
    assert append(writer, write("a", size=written)) == [("a", None)]
    assert (disk.steps, writer.logged) == (["append a", *steps], after)


@pytest.mark.parametrize("error", [None, full()])
def test_a_checkpoint_that_moved_not_all_is_tried_again_sooner(
    disk: FakeDisk, writer: Writer, error: sqlite3.Error | None
) -> None:
    disk.is_whole, disk.checkpoint_error = False, error
    append(writer, write("a", size=4 * MIB))
    assert writer.logged == 2 * MIB
    append(writer, write("a", size=2 * MIB - PAGES))
    assert disk.steps == ["append a", "checkpoint"] * 2


def test_a_write_is_acknowledged_before_the_checkpoint(disk: FakeDisk, writer: Writer) -> None:
    outcomes = writer.append([write("a", size=2 * MIB), write("b", size=2 * MIB)])
    group, error = next(outcomes)
    assert ([write.change.key for write in group], error) == (["a", "b"], None)
    assert disk.steps == ["append a b"]
    assert list(outcomes) == []
    assert disk.steps == ["append a b", "checkpoint"]


@pytest.mark.parametrize(
    ("logged", "had_reserve", "is_whole", "has_filler", "steps", "after", "has_room"),
    [
        (9, True, True, True, ["release", "checkpoint", "extend", "drop"], 0, True),
        (9, False, True, True, ["release", "checkpoint", "drop"], 0, True),
        (9, False, True, False, ["release", "checkpoint", "drop"], 0, True),
        (9, False, False, False, ["release", "checkpoint", "drop"], 9, False),
        (0, False, True, False, ["release", "drop"], 0, False),
        (0, False, True, True, ["release", "drop"], 0, True),
        (0, True, True, False, ["release", "extend", "drop"], 0, True),
    ],
)
def test_what_is_given_up_on_a_full_disk(
    disk: FakeDisk,
    writer: Writer,
    logged: int,
    had_reserve: bool,
    is_whole: bool,
    has_filler: bool,
    steps: list[str],
    after: int,
    has_room: bool,
) -> None:
    error = full()
    writer.logged, disk.errors = logged, [error]
    disk.had_reserve, disk.is_whole, disk.has_filler = had_reserve, is_whole, has_filler
    disk.refills = True
    assert append(writer, write("a")) == [("a", None if has_room else error)]
    again = ["refill", "filler 1000", "append a"] if has_room else []
    assert disk.steps == ["append a", *steps, *again]
    assert writer.logged == after + (PAGES if has_room else 0)


@pytest.mark.parametrize("had_reserve", [True, False])
def test_without_room_even_for_that_only_the_reserve_is_room(
    disk: FakeDisk, writer: Writer, had_reserve: bool
) -> None:
    error = full()
    disk.errors, disk.refills = [error], True
    disk.had_reserve, disk.filler_error = had_reserve, full()
    assert append(writer, write("a")) == [("a", None if had_reserve else error)]


WRITES = [write("a"), write("b", may_use_reserve=True), write("c")]


@pytest.mark.parametrize(
    ("refills", "free", "accepted", "steps"),
    [
        (True, 0, "abc", ["refill", "filler 1000", "append a b c"]),
        (False, 2000, "abc", ["refill", "append a b c"]),
        (False, 1999, "b", ["refill", "append b"]),
    ],
)
def test_while_the_reserve_is_released_only_some_writes_are_taken(
    disk: FakeDisk, writer: Writer, refills: bool, free: int, accepted: str, steps: list[str]
) -> None:
    disk.is_released, disk.refills, disk.free = True, refills, free
    *refused, done = append(writer, *WRITES)
    assert done == (accepted, None)
    assert disk.steps == steps
    assert [keys for keys, _ in refused] == ([] if accepted == "abc" else ["ac"])
    assert all("only deletions are accepted" in str(error) for _, error in refused)


def test_a_file_whose_space_cannot_be_read_refuses_writes(disk: FakeDisk, writer: Writer) -> None:
    disk.is_released, disk.free_error = True, LOCKED
    assert append(writer, *WRITES) == [("abc", LOCKED)]
    disk.free_error, disk.free = None, 2000
    assert append(writer, *WRITES) == [("abc", None)]


def test_writes_that_are_all_refused_are_not_appended(disk: FakeDisk, writer: Writer) -> None:
    disk.is_released = True
    assert append(writer, WRITES[1]) == [("b", None)]
    ((keys, error),) = append(writer, WRITES[0])
    assert (keys, type(error)) == ("a", OSError)
    assert "append a" not in disk.steps


def test_full_disk_while_adding_the_filler_is_no_failure(disk: FakeDisk, writer: Writer) -> None:
    disk.filler_error = full()
    writer.add_filler()
    assert disk.steps == ["filler 1000"]


@pytest.mark.parametrize("error", [LOCKED, full()])
def test_a_write_without_room_or_for_another_reason_is_refused(
    disk: FakeDisk, writer: Writer, error: sqlite3.Error
) -> None:
    disk.errors, disk.had_reserve, disk.has_filler = [error], False, False
    assert append(writer, write("a")) == [("a", error)]
    assert disk.steps.count("append a") == 1


@pytest.mark.parametrize(
    ("errors", "steps"),
    [
        ([], ["forget 3 5 9"]),
        ([full()], ["forget 3 5 9", "release", "extend", "drop", "forget 3 5 9"]),
    ],
)
def test_what_is_forgotten_may_take_the_reserve(
    disk: FakeDisk, writer: Writer, errors: list[sqlite3.Error], steps: list[str]
) -> None:
    disk.errors = list(errors)
    writer.forget(3, 5, 9)
    assert disk.steps == steps


@pytest.mark.parametrize("error", [LOCKED, full()])
def test_failed_compaction_raises(disk: FakeDisk, writer: Writer, error: sqlite3.Error) -> None:
    disk.errors, disk.had_reserve, disk.has_filler = [error], False, False
    with pytest.raises(sqlite3.OperationalError):
        writer.forget(3, 5, 9)
    assert disk.steps.count("forget 3 5 9") == 1


def test_unwritable_mark_is_logged_once_per_failure_period(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mark"
    path.write_bytes(content := mark_content(Recorded("store", 1)))
    writable, closed = os.open(path, os.O_WRONLY), os.open(path, os.O_RDONLY)
    descriptor = os.dup(closed)
    mark = Mark(path, descriptor, len(content) - 21)
    with caplog.at_level(logging.ERROR):
        for present in (closed, closed, writable, closed):
            os.dup2(present, descriptor)
            mark.record(3)
    for each in (writable, closed):
        os.close(each)
    mark.close()
    assert [record.getMessage() for record in caplog.records].count(
        "the store's mark cannot be written"
    ) == 2
    assert read_mark(path) == Recorded("store", 3)


async def test_writes_are_acknowledged_in_one_batch(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "state.db") as store:
        await store.put("b", b"0", 0)
        await store.put("c", b"0", 0)
        received: list[Any] = []
        calls = [
            asyncio.ensure_future(call)
            for call in (
                store.put("a", b"1", 0),
                store.delete("b", b"2", 1),
                store.put("c", b"3", 2),
            )
        ]
        for name in ("first", "second"):
            store.listen(
                lambda batch, name=name: received.append(  # type: ignore[misc]
                    (name, [change.key for change in batch], store.revision, [
                        call.done() for call in calls[1:]
                    ])
                )
            )  # fmt: skip
        await asyncio.sleep(0)
        # Its caller is cancelled; the write is made nevertheless.
        calls[0].cancel()
        assert await asyncio.gather(*calls[1:]) == [4, 5]
        page = await store.range("")
        assert [(item.key, item.revision) for item in page.entries] == [("a", 3), ("c", 5)]
        # Listeners are called once a batch, with the store current, before the writers.
        assert [name for name, *_ in received] == ["first", "second"] * (len(received) // 2)
        assert [key for _, keys, *_ in received[::2] for key in keys] == ["a", "b", "c"]
        assert received[-1][2] == 5
        assert not received[-1][3][-1]


async def test_queued_writes_are_made_in_groups_and_before_the_end(tmp_path: Path) -> None:
    groups: list[int] = []
    async with SqliteStore(tmp_path / "state.db") as store:
        store.listen(lambda batch: groups.append(len(batch)))
        calls = [asyncio.ensure_future(store.put(f"k{number}", b"", 0)) for number in range(1500)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*calls) == list(range(1, 1501))
    assert sum(groups) == 1500
    assert max(groups) <= 512


async def test_compaction_is_done_in_steps(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "state.db", compaction_step=2) as store:
        for number in range(25):
            await store.put("a", b"", number)
        await store.compact(3)
        compaction = asyncio.ensure_future(store.compact(30))
        await asyncio.sleep(0)
        # A write waits for one step, not for all.
        await store.put("b", b"", 0)
        assert not compaction.done()
        await compaction
        assert store.compacted == 25
        # What is compacted already is not refused less.
        await store.compact(20)
        assert store.compacted == 25
        assert [item.revision for item in (await store.range("")).entries] == [25, 26]


async def test_operation_that_fails_breaks_no_other(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with SqliteStore(path) as store:
        await store.put("a", b"1", 0)
        with sqlite3.connect(path) as other:
            other.execute("ALTER TABLE log RENAME TO elsewhere")
        with pytest.raises(StoreBrokenError, match=f"{path}: no such table"):
            await store.history("", 0)
        with pytest.raises(StoreBrokenError, match=f"{path}: no such table"):
            await store.put("b", b"1", 0)
        unretrieved: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unretrieved.append(context)
        )
        given_up = asyncio.ensure_future(store.put("b", b"1", 0))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(StoreBrokenError):
            await store.put("b", b"1", 0)
        with sqlite3.connect(path) as other:
            other.execute("ALTER TABLE elsewhere RENAME TO log")
        assert [change.key for change in await store.history("", 0)] == ["a"]
        # A refused write leaves its key as it was.
        assert await store.put("b", b"1", 0) == 5
        del given_up
    gc.collect()
    assert unretrieved == []
