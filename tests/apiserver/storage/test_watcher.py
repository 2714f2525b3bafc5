"""Queues and windows of the cache, byte by byte, without a store."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from moorage.apiserver.storage import cache
from moorage.apiserver.storage.cache import CacheEvent, WatchCache
from moorage.apiserver.storage.shared_queue import QueueBudget
from moorage.apiserver.storage.store import Change, CompactedError, Page
from moorage.apiserver.storage.watcher import Watcher, WatcherOverflowError
from tests.clocks import settle

ENTRY = 128


@dataclass(frozen=True)
class Changed:
    revision: int
    frame: bytes | None = b"x" * 72


def watching(budget: QueueBudget, after: int = 0) -> Watcher[Changed, bytes]:
    return Watcher(lambda event: event.frame, after, budget)


def push(watcher: Watcher[Changed, bytes], *revisions: int, frame: bytes | None = None) -> None:
    for revision in revisions:
        # A frame of its own for each: 200 bytes with what a queue takes.
        watcher.push(Changed(revision, frame or bytes(72)))


async def test_only_later_events_that_are_wanted_are_queued() -> None:
    budget = QueueBudget(1000, 1000)
    watcher = watching(budget, after=3)
    push(watcher, 2, 3, 4)
    watcher.push(Changed(5, None))
    assert (watcher.queued_bytes, budget.used) == (200, 200)
    assert len(await watcher.next_batch()) == 1
    # What was returned counts until the next call.
    assert budget.used == 200
    assert await watcher.next_batch(timeout_s=0) == []
    assert (watcher.queued_bytes, budget.used) == (0, 0)


@pytest.mark.parametrize(("limit_bytes", "ends"), [(400, False), (399, True)])
async def test_a_queue_ends_above_its_own_budget(limit_bytes: int, ends: bool) -> None:
    budget = QueueBudget(limit_bytes, 10_000)
    overflows: list[str] = []
    watcher = watching(budget)
    watcher.on_overflow = lambda: overflows.append("over")
    push(watcher, 1, 2)
    assert watcher.is_overflowed == ends
    assert overflows == (["over"] if ends else [])
    assert budget.used == (0 if ends else 400)
    if ends:
        push(watcher, 3)
        watcher.overflow()
        assert (overflows, budget.used) == (["over"], 0)
        with pytest.raises(WatcherOverflowError):
            await watcher.next_batch()


def test_one_frame_above_the_budget_is_still_queued() -> None:
    watcher = watching(QueueBudget(10, 10_000))
    push(watcher, 1)
    assert not watcher.is_overflowed
    push(watcher, 2)
    assert watcher.is_overflowed


@pytest.mark.parametrize(("together", "ended"), [(800, []), (799, ["long"]), (600, ["long"])])
def test_together_the_longest_queue_ends_first(together: int, ended: list[str]) -> None:
    budget = QueueBudget(10_000, together)
    named = {name: watching(budget) for name in ("short", "long")}
    push(named["short"], 1)
    push(named["long"], 1, 2)
    push(named["long"], 3)
    names = [name for name, watcher in named.items() if watcher.is_overflowed]
    assert names == ended
    # The one that is left is within the budget.
    assert budget.used == (200 if ended else 800)


def test_a_shared_frame_is_counted_while_a_queue_holds_it() -> None:
    budget = QueueBudget(10_000, 10_000)
    one, two = watching(budget), watching(budget)
    frame = b"y" * 72
    for watcher in (one, two):
        watcher.push(Changed(1, frame))
    assert budget.used == 200
    one.close()
    assert budget.used == 200
    two.close()
    assert budget.used == 0
    one.close()
    three = watching(budget)
    three.push(Changed(2, frame))
    assert budget.used == 200
    assert (one.queued_bytes, two.queued_bytes, three.queued_bytes) == (0, 0, 200)
    # The budget keeps no watcher that is closed.
    closed = weakref.ref(one), weakref.ref(two)
    del one, two, watcher
    gc.collect()
    assert [reference() for reference in closed] == [None, None]


async def test_a_batch_holds_what_fits_and_one_frame_at_least() -> None:
    watcher = watching(QueueBudget(10_000, 10_000))
    push(watcher, 1, 2, 3, 4)
    assert len(await watcher.next_batch(limit_bytes=1)) == 1
    assert len(await watcher.next_batch(limit_bytes=400)) == 2
    assert len(await watcher.next_batch()) == 1


@dataclass(frozen=True)
class Word:
    key: str
    revision: int
    size: int


class Log:
    """An empty store, whose changes the test makes."""

    replay_floor = revision = 0
    damage = ()

    def __init__(self) -> None:
        self.commit: Callable[[list[Change]], None] = lambda _: None

    async def range(self, _prefix: str, **_: int) -> Page:
        return Page(0, [])

    async def history(self, _prefix: str, _floor: int) -> list[Change]:
        return []

    def listen(self, listener: Callable[[list[Change]], None]) -> None:
        self.commit = listener


async def loaded(**limits: Any) -> tuple[WatchCache[Word], Log]:
    log = Log()
    store: Any = log
    cached: WatchCache[Word] = WatchCache(
        store, lambda key, revision, value: Word(key, revision, len(value)), **limits
    )
    await cached.load()
    return cached, log


async def window(cached: WatchCache[Word], table: str) -> tuple[int, list[CacheEvent[Word]]]:
    """Return the revision that a table's window starts after, and its events."""
    started = 0
    try:
        watcher = cached.watch(f"{table}/", 0, lambda event: event)
    except CompactedError as error:
        started = error.compacted
        watcher = cached.watch(f"{table}/", started, lambda event: event)
    events = await watcher.next_batch(timeout_s=0)
    cached.unwatch(f"{table}/", watcher)
    return started, events


async def test_a_window_holds_so_many_events() -> None:
    cached, log = await loaded(window_events=2)
    log.commit([Change("a/1", 2, bytes(10))])
    assert cached.window_bytes == 266
    log.commit([Change("a/1", 3, bytes(7), 2)])
    assert cached.window_bytes == 266 + 273
    log.commit([Change("a/2", 4, bytes(20))])
    assert cached.window_bytes == 273 + 276
    started, events = await window(cached, "a")
    assert (started, [event.revision for event in events]) == (2, [3, 4])


async def test_a_watcher_that_is_closed_twice_gives_its_bytes_back_once() -> None:
    budget = QueueBudget(10_000, 10_000)
    other, watcher = watching(budget), watching(budget)
    push(other, 1)
    push(watcher, 1, 2, 3)
    assert len(await watcher.next_batch(limit_bytes=200)) == 1
    assert (watcher.queued_bytes, budget.used) == (600, 800)
    for _ in range(2):
        watcher.close()
        assert (watcher.queued_bytes, budget.used) == (0, 200)
    watcher.overflow()
    assert (watcher.queued_bytes, budget.used) == (0, 200)


def test_within_the_budget_no_watcher_is_ended() -> None:
    budget = QueueBudget(10_000, 400)
    first, second = watching(budget), watching(budget)
    push(first, 1)
    push(second, 1)
    assert budget.used == 400
    budget.enforce()
    assert not first.is_overflowed
    assert not second.is_overflowed


async def test_windows_together_hold_so_many_bytes() -> None:
    # Exactly what four events hold.
    cached, log = await loaded(window_limit_bytes=4 * 256 + 10 + 20 + 30 + 40)
    log.commit([Change("a/1", 1, bytes(10)), Change("b/1", 2, bytes(20))])
    log.commit([Change("b/2", 3, bytes(30)), Change("a/2", 4, bytes(40))])
    assert cached.window_bytes == 1124
    # One byte more: the oldest event of the longest window goes.
    log.commit([Change("c/1", 5, b"")])
    windows = [await window(cached, name) for name in "abc"]
    assert [started for started, _ in windows] == [1, 0, 0]
    assert [[event.revision for event in events] for _, events in windows] == [[4], [2, 3], [5]]
    assert (cached.window_bytes, cached.revision) == (1124 - 266 + 256, 5)


async def test_events_of_changes() -> None:
    cached, log = await loaded()
    log.commit([Change("a/1", 1, b"1"), Change("a/1", 2, b"12"), Change("a/1", 3, b"123", 2, True)])
    # A deletion of a damaged key, which the cache does not hold.
    log.commit([Change("a/2", 4, b"", 1, True)])
    assert await window(cached, "a") == (
        0,
        [
            CacheEvent("ADDED", 1, Word("a/1", 1, 1), None),
            CacheEvent("MODIFIED", 2, Word("a/1", 2, 2), Word("a/1", 1, 1)),
            CacheEvent("DELETED", 3, Word("a/1", 3, 3), Word("a/1", 2, 2)),
            CacheEvent("DELETED", 4, Word("a/2", 4, 0), None),
        ],
    )
    assert (cached.scan("a/"), cached.count("a/")) == ((), 0)


def test_the_limits_of_queues_and_windows() -> None:
    mib = 1024 * 1024
    budget = QueueBudget()
    assert (budget.queue_bytes, budget.all_bytes) == (8 * mib, 128 * mib)
    limits = (cache.WINDOW_EVENTS, cache.WINDOW_BYTES)
    assert limits == (4096, 64 * mib)


@pytest.mark.parametrize("is_overflow", [False, True])
async def test_waiting_reader_is_woken(is_overflow: bool) -> None:
    watcher = watching(QueueBudget(1000, 1000))
    reading = asyncio.ensure_future(watcher.next_batch())
    await settle()
    assert not reading.done()
    if is_overflow:
        watcher.overflow()
    else:
        push(watcher, 1)
    async with asyncio.timeout(20):
        if not is_overflow:
            assert await reading == [bytes(72)]
            return
        with pytest.raises(WatcherOverflowError):
            await reading


async def test_a_finished_watch_ends_once_its_queue_is_read() -> None:
    watcher = watching(QueueBudget(1000, 1000))
    reading = asyncio.ensure_future(watcher.next_batch())
    await settle()
    push(watcher, 1)
    watcher.finish()
    async with asyncio.timeout(20):
        assert await reading == [bytes(72)]
        assert await watcher.next_batch() == []
