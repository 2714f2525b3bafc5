"""What the writer's thread decides: when the log starts over, and what a full disk is given."""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.storage import database, sqlite
from moorage.apiserver.storage.sqlite import SqliteStore
from moorage.apiserver.storage.store import Change, StoreBrokenError

MIB = 1024 * 1024
# Of a transaction with values of no size.
PAGES = 4 * 4096


def full() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


class Steps:
    """The functions on the file, and the reserve, as far as the writer calls them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: SqliteStore) -> None:
        self.steps: list[str] = []
        self.is_whole = True
        self.checkpoint_error: sqlite3.Error | None = None
        self.filler_error: sqlite3.Error | None = None
        self.has_filler = True
        self.had_reserve = True
        self.free = 0
        self.refills = False
        self.errors: list[sqlite3.Error] = []
        self.store = store
        for name in ("checkpoint", "drop_filler", "add_filler", "free_bytes", "append", "forget"):
            monkeypatch.setattr(database, name, getattr(self, name))
        self.size = 1000
        self.is_released = False
        store._reserve = self  # type: ignore[assignment]
        store._post = self.record  # type: ignore[method-assign,assignment]  # it records
        self.posted: list[tuple[Any, ...]] = []

    def record(self, *call: Any) -> None:
        self.posted.append(call)

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
        return self.free

    def append(self, _connection: object, changes: list[Change]) -> None:
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
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "state.db")


@pytest.fixture
def on(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch, store)


NONE: Any = None


def write(key: str, *, may_use_reserve: bool = False, size: int = 0, revision: int = 7) -> Any:
    return sqlite._Write(Change(key, revision, b"x" * size, 0, False), NONE, may_use_reserve)


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
    on: Steps, before: int, written: int, steps: list[str], after: int
) -> None:
    on.store._logged = before
    on.store._checkpoint(NONE, written)
    assert (on.steps, on.store._logged) == (steps, after)


@pytest.mark.parametrize("error", [None, full()])
def test_a_checkpoint_that_moved_not_all_is_tried_again_sooner(
    on: Steps, error: sqlite3.Error | None
) -> None:
    on.is_whole, on.checkpoint_error = False, error
    on.store._checkpoint(NONE, 4 * MIB)
    assert on.store._logged == 2 * MIB
    on.store._checkpoint(NONE, 2 * MIB - PAGES)
    assert on.steps == ["checkpoint", "checkpoint"]


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
    on: Steps,
    logged: int,
    had_reserve: bool,
    is_whole: bool,
    has_filler: bool,
    steps: list[str],
    after: int,
    has_room: bool,
) -> None:
    on.store._logged = logged
    on.had_reserve, on.is_whole, on.has_filler = had_reserve, is_whole, has_filler
    assert on.store._make_room(NONE) == has_room
    assert (on.steps, on.store._logged) == (steps, after)


@pytest.mark.parametrize("had_reserve", [True, False])
def test_without_room_even_for_that_only_the_reserve_is_room(on: Steps, had_reserve: bool) -> None:
    on.had_reserve, on.filler_error = had_reserve, full()
    assert on.store._make_room(NONE) == had_reserve


def refused(on: Steps) -> list[list[str]]:
    return [
        [write_.change.key for write_ in call[1]]
        for call in on.posted
        if call[0] == on.store._refuse
    ]


WRITES = [write("a"), write("b", may_use_reserve=True), write("c")]


@pytest.mark.parametrize(
    ("refills", "free", "left", "steps"),
    [
        (True, 0, "abc", ["refill", "filler 1000"]),
        (False, 2000, "abc", ["refill"]),
        (False, 1999, "b", ["refill"]),
    ],
)
def test_while_the_reserve_is_released_only_some_writes_are_taken(
    on: Steps, refills: bool, free: int, left: str, steps: list[str]
) -> None:
    on.is_released, on.refills, on.free = True, refills, free
    accepted = on.store._without_room(NONE, WRITES)
    assert "".join(write_.change.key for write_ in accepted) == left
    assert on.steps == steps
    assert refused(on) == ([] if left == "abc" else [["a", "c"]])
    if left != "abc":
        assert "only deletions are accepted" in str(on.posted[0][2])


def test_what_may_use_the_reserve_refuses_nothing(on: Steps) -> None:
    on.is_released = True
    assert on.store._without_room(NONE, WRITES[1:2]) == WRITES[1:2]
    assert on.posted == []
    on.store._write(NONE, WRITES[:1])
    assert "append a" not in on.steps
    assert refused(on) == [["a"]]


def test_full_disk_while_adding_the_filler_is_no_failure(on: Steps) -> None:
    on.filler_error = full()
    on.store._add_filler(NONE)
    assert on.steps == ["filler 1000"]


class FakeMark:
    def __init__(self) -> None:
        self.error: OSError | None = None
        self.recorded: list[int] = []

    def record(self, revision: int) -> None:
        if self.error is not None:
            raise self.error
        self.recorded.append(revision)


def with_mark(on: Steps) -> FakeMark:
    mark = FakeMark()
    on.store._mark = mark  # type: ignore[assignment]
    return mark


def test_write_is_recorded_acknowledged_and_counted(on: Steps) -> None:
    mark = with_mark(on)
    writes = [write("a", size=10, revision=7), write("b", size=20, revision=8)]
    on.store._write(NONE, writes)
    assert on.steps == ["append a b"]
    assert mark.recorded == [8]
    assert on.posted == [(on.store._acknowledge, writes)]
    assert on.store._logged == PAGES + 30


def test_a_write_that_finds_the_disk_full_is_done_in_the_room_that_is_made(on: Steps) -> None:
    with_mark(on)
    on.errors, on.refills = [full()], True
    writes = [write("a")]
    on.store._write(NONE, writes)
    assert on.steps == ["append a", "release", "extend", "drop", "refill", "filler 1000",
                        "append a"]  # fmt: skip
    assert on.posted == [(on.store._acknowledge, writes)]


@pytest.mark.parametrize(
    ("errors", "appends"),
    [([sqlite3.OperationalError("locked")], 1), ([full()], 1)],
)
def test_a_write_without_room_or_for_another_reason_is_refused(
    on: Steps, errors: list[sqlite3.Error], appends: int
) -> None:
    on.errors, on.had_reserve, on.has_filler = list(errors), False, False
    on.store._write(NONE, [write("a")])
    assert on.steps.count("append a") == appends
    assert refused(on) == [["a"]]
    assert on.posted[0][2] is errors[0]


@pytest.mark.parametrize(
    ("errors", "had_reserve", "steps"),
    [
        ([], True, ["forget 3 5 9"]),
        ([full()], True, ["forget 3 5 9", "release", "extend", "drop", "forget 3 5 9"]),
    ],
)
def test_what_is_forgotten_may_take_the_reserve(
    on: Steps, errors: list[sqlite3.Error], had_reserve: bool, steps: list[str]
) -> None:
    on.store._forgotten = 3
    on.errors, on.had_reserve = list(errors), had_reserve
    on.store._forget(NONE, 5, 9)
    assert on.steps == steps


@pytest.mark.parametrize("error", [sqlite3.OperationalError("locked"), full()])
def test_failed_compaction_raises(on: Steps, error: sqlite3.Error) -> None:
    on.store._forgotten = 3
    on.errors, on.had_reserve, on.has_filler = [error], False, False
    with pytest.raises(sqlite3.OperationalError):
        on.store._forget(NONE, 5, 9)
    assert on.steps.count("forget 3 5 9") == 1


def test_unwritable_mark_is_logged_once_per_failure_period(
    on: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    mark = with_mark(on)
    with caplog.at_level(logging.ERROR):
        for error in (OSError(28, "full"), OSError(28, "full"), None, OSError(28, "full")):
            mark.error = error
            on.store._record(3)
    assert len(caplog.records) == 2
    assert mark.recorded == [3]


def ends(fail: Callable[[], Exception]) -> Callable[[object], object]:
    def run(_connection: object) -> object:
        raise fail()

    return run


def test_a_job_of_a_thread_ends_its_future(on: Steps) -> None:
    on.store._run(NONE, sqlite._Job(lambda _: 5, NONE))
    on.store._run(NONE, sqlite._Job(ends(lambda: StoreBrokenError("why")), NONE))
    on.store._run(NONE, sqlite._Job(ends(lambda: sqlite3.OperationalError("locked")), NONE))
    (resolve, _, outcome), (fail, _, broken), (again, _, wrapped) = on.posted
    assert (resolve, outcome) == (sqlite._resolve, 5)
    assert (fail, str(broken)) == (sqlite._fail, "why")
    assert again is sqlite._fail
    assert str(wrapped) == f"{on.store._path}: locked"


async def test_writes_are_acknowledged_in_one_batch(store: SqliteStore) -> None:
    changes = [Change("a", 7, b"1"), Change("b", 8, b"2", 5, True), Change("c", 9, b"3", 6)]
    loop = asyncio.get_running_loop()
    writes = [sqlite._Write(change, loop.create_future(), False) for change in changes]
    other = loop.create_future()
    store._heads = {"b": 5, "c": 6, "d": 4}
    store._in_flight = {"d": other, **{write.change.key: write.done for write in writes}}
    # Its caller is cancelled; the write is made nevertheless.
    writes[0].done.cancel()
    received: list[Any] = []
    for name in ("first", "second"):
        store.listen(
            lambda batch, name=name: received.append(  # type: ignore[misc]
                (name, batch, store.revision, [write.done.done() for write in writes])
            )
        )
    store._acknowledge(writes)
    assert store._heads == {"a": 7, "c": 9, "d": 4}
    assert store._in_flight == {"d": other}
    # Listeners are called once a batch, with the store current, before the writers.
    assert received == [(name, changes, 9, [True, False, False]) for name in ("first", "second")]
    assert [write.done.result() for write in writes[1:]] == [8, 9]


async def test_refused_writes_leave_their_keys_as_they_were(store: SqliteStore) -> None:
    loop = asyncio.get_running_loop()
    writes = [sqlite._Write(Change(key, 7, b""), loop.create_future(), False) for key in "ab"]
    other = loop.create_future()
    store._heads = {"a": 5}
    store._in_flight = {"c": other, **{write.change.key: write.done for write in writes}}
    store._refuse(writes, OSError("no space"))
    assert (store._heads, store._in_flight) == ({"a": 5}, {"c": other})
    for write_ in writes:
        with pytest.raises(StoreBrokenError) as refused:
            await write_.done
        assert str(refused.value) == f"{store._path}: no space"


def test_what_is_queued_is_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_BATCH_LIMIT", 3)
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for item in (*"abcdef", None):
        items.put(item)
    # The end is found again after what was queued before it.
    batches: list[Any] = [sqlite._take(items) for _ in range(3)]
    assert batches == [[*"abc"], [*"def"], None]
    for item in ("a", None):
        items.put(item)
    batches = [sqlite._take(items) for _ in range(2)]
    assert batches == [["a"], None]
    assert items.empty()


async def test_compaction_is_done_in_steps(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_COMPACTION_STEP", 10)
    forgotten: list[tuple[int, int, int]] = []

    async def on_writer(run: Callable[[Any], None]) -> None:
        run(NONE)

    monkeypatch.setattr(store, "_on_writer", on_writer)
    monkeypatch.setattr(
        store, "_forget", lambda _, upto, target: forgotten.append((store._forgotten, upto, target))
    )
    store._durable, store._compacted, store._forgotten = 25, 3, 2
    await store.compact(30)
    assert forgotten == [(2, 12, 25), (12, 22, 25), (22, 25, 25)]
    assert (store._forgotten, store.compacted) == (25, 25)
    # What is compacted already is not refused less.
    await store.compact(20)
    assert (len(forgotten), store.compacted) == (3, 25)
