from __future__ import annotations

import asyncio
import gc
import itertools
import weakref
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.storage import (
    CacheEvent,
    CompactedError,
    QueueBudget,
    SqliteStore,
    WatchCache,
    WatcherOverflowError,
)
from moorage.apiserver.storage.watcher import Watcher


@dataclass(frozen=True)
class Word:
    key: str
    revision: int
    text: str

    @property
    def size(self) -> int:
        return len(self.text)


def make_word(key: str, revision: int, value: bytes) -> Word:
    return Word(key, revision, value.decode())


def everything(event: CacheEvent[Word]) -> tuple[str, str]:
    return event.type, event.item.text


def text(event: CacheEvent[Word]) -> str:
    return event.item.text


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(tmp_path / "store.db") as store:
        yield store


@pytest.fixture
async def cache(store: SqliteStore) -> WatchCache[Word]:
    cache = WatchCache(store, make_word)
    await cache.load()
    return cache


async def test_a_write_is_readable_as_soon_as_it_is_acknowledged(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    revision = await store.put("a/1", b"one", 0)
    assert cache.get("a/1") == Word("a/1", revision, "one")
    assert cache.revision == revision


async def test_what_the_store_held_before_is_loaded(store: SqliteStore) -> None:
    await store.put("a/2", b"two", 0)
    await store.put("a/1", b"one", 0)
    cache = WatchCache(store, make_word)
    await cache.load()
    assert [word.text for word in cache.scan("a/")] == ["one", "two"]


async def test_a_scan_is_in_key_order_and_within_its_prefix(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    for key in ("a/n/3", "a/n/1", "a/m/2", "b/n/0"):
        await store.put(key, key.encode(), 0)
    assert [word.key for word in cache.scan("a/")] == ["a/m/2", "a/n/1", "a/n/3"]
    assert [word.key for word in cache.scan("a/n/")] == ["a/n/1", "a/n/3"]
    assert cache.count("a/n/") == 2
    assert not cache.scan("c/")


async def test_a_scan_is_the_same_sequence_until_something_of_its_table_changes(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    for key in ("a/n/1", "a/n/2", "b/n/1"):
        await store.put(key, b"one", 0)
    before = cache.scan("a/n/")
    revision = await store.put("b/n/2", b"two", 0)
    assert cache.scan("a/n/") is before
    revision = await store.put("a/n/2", b"two", revision - 2)
    assert [word.text for word in cache.scan("a/n/")] == ["one", "two"]
    await store.delete("a/n/2", b"two", revision)
    assert [word.key for word in cache.scan("a/n/")] == ["a/n/1"]
    assert [word.text for word in before] == ["one", "one"]
    for number in range(100):
        assert not cache.scan(f"a/other-{number}/")
    assert [word.key for word in cache.scan("a/n/")] == ["a/n/1"]


async def test_a_watcher_gets_what_happens_after_its_revision(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    first = await store.put("a/1", b"one", 0)
    watcher = cache.watch("a/", first, everything)
    second = await store.put("a/1", b"uno", first)
    await store.put("b/1", b"other table", 0)
    await store.delete("a/1", b"bye", second)
    assert await watcher.next_batch() == [("MODIFIED", "uno"), ("DELETED", "bye")]


async def test_a_watch_may_start_within_the_window(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    first = await store.put("a/1", b"one", 0)
    await store.put("a/2", b"two", 0)
    watcher = cache.watch("a/", first, everything)
    assert await watcher.next_batch() == [("ADDED", "two")]


async def test_watch_before_the_window_is_rejected(store: SqliteStore) -> None:
    cache = WatchCache(store, make_word, window_events=2)
    await cache.load()
    first = await store.put("a/1", b"1", 0)
    for i in range(2, 6):
        await store.put(f"a/{i}", b"", 0)
    with pytest.raises(CompactedError):
        cache.watch("a/", first, everything)


async def test_a_watcher_that_does_not_read_is_cut_off_not_queued_for_ever(
    store: SqliteStore,
) -> None:
    cache = WatchCache(store, make_word, budget=QueueBudget(queue_bytes=1000))
    await cache.load()
    ended: list[str] = []
    watcher = cache.watch("a/", cache.revision, text)
    watcher.on_overflow = lambda: ended.append("a")
    for i in range(5):
        await store.put(f"a/{i}", b"x" * 300, 0)
    with pytest.raises(WatcherOverflowError):
        await watcher.next_batch()
    assert ended == ["a"]
    assert cache.queued_bytes == 0


async def test_unwatched_watcher_receives_nothing_more(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    watcher = cache.watch("a/", cache.revision, everything)
    cache.unwatch("a/", watcher)
    await store.put("a/1", b"", 0)
    assert await watcher.next_batch(timeout_s=0) == []


async def test_waiting_for_a_revision_ends_when_it_arrives_or_the_time_is_up(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    waiting = asyncio.ensure_future(cache.wait_for(cache.revision + 1, timeout_s=5))
    await asyncio.sleep(0)
    await store.put("a/1", b"", 0)
    assert await waiting is True
    assert await cache.wait_for(cache.revision + 1, timeout_s=0.01) is False


async def test_waits_end_at_their_own_revision(store: SqliteStore, cache: WatchCache[Word]) -> None:
    first, second, gone = (
        asyncio.ensure_future(cache.wait_for(cache.revision + distance, timeout_s=5))
        for distance in (1, 2, 1)
    )
    await asyncio.sleep(0)
    gone.cancel()
    await store.put("a/1", b"", 0)
    assert await first is True
    assert not second.done()
    await store.put("a/2", b"", 0)
    assert await second is True
    with pytest.raises(asyncio.CancelledError):
        await gone


async def test_the_item_before_a_change_comes_with_it(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    first = await store.put("a/1", b"one", 0)
    watcher = cache.watch("a/", first, lambda event: event.before and event.before.text)
    await store.put("a/1", b"uno", first)
    assert await watcher.next_batch() == ["one"]


async def test_one_frame_larger_than_the_budget_is_still_sent(store: SqliteStore) -> None:
    cache = WatchCache(store, make_word, budget=QueueBudget(queue_bytes=1000))
    await cache.load()
    watcher = cache.watch("a/", cache.revision, text)
    await store.put("a/1", b"x" * 5000, 0)
    assert await watcher.next_batch() == ["x" * 5000]


async def test_all_queues_together_have_a_budget_and_the_longest_is_ended(
    store: SqliteStore,
) -> None:
    cache = WatchCache(store, make_word, budget=QueueBudget(queue_bytes=10**6, all_bytes=10_000))
    await cache.load()
    slow = cache.watch("a/", cache.revision, lambda event: event.item.text + "s")
    quick = cache.watch("a/", cache.revision, lambda event: event.item.text + "q")
    for i in range(20):
        await store.put(f"a/{i}", b"x" * 1000, 0)
        assert len(await quick.next_batch()) == 1
        assert cache.queued_bytes <= 10_000
    with pytest.raises(WatcherOverflowError):
        await slow.next_batch()


async def test_a_frame_that_watchers_share_is_counted_once(store: SqliteStore) -> None:
    frames: dict[int, str] = {}
    cache = WatchCache(store, make_word, budget=QueueBudget(all_bytes=10_000))
    await cache.load()
    watchers = [
        cache.watch(
            "a/", cache.revision, lambda event: frames.setdefault(event.revision, event.item.text)
        )
        for _ in range(100)
    ]
    await store.put("a/1", b"x" * 5000, 0)
    assert 5000 < cache.queued_bytes < 6000
    for watcher in watchers:
        assert len(await watcher.next_batch()) == 1
    for watcher in watchers:
        # What was taken counts until it is sent.
        assert 5000 < cache.queued_bytes < 6000
        cache.unwatch("a/", watcher)
    assert cache.queued_bytes == 0


async def test_a_batch_may_be_limited_and_nothing_is_left_out(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    watcher = cache.watch("a/", cache.revision, text)
    for i in range(10):
        await store.put(f"a/{i}", str(i).encode() * 1000, 0)
    taken: list[str] = []
    while len(taken) < 10:
        batch = await watcher.next_batch(limit_bytes=3500)
        assert 1 <= len(batch) <= 3
        taken += batch
    assert [page[0] for page in taken] == [str(i) for i in range(10)]
    assert await watcher.next_batch(timeout_s=0) == []


async def test_an_event_that_comes_as_the_time_is_up_is_in_the_batch(
    cache: WatchCache[Word],
) -> None:
    watcher = cache.watch("a/", cache.revision, text)
    event = CacheEvent("ADDED", cache.revision + 1, Word("a/1", 1, "one"), None)
    reading = asyncio.ensure_future(watcher.next_batch(timeout_s=0))
    # The reader waits now, its time is up at the loop's next turn, and the event comes after that
    # and before the reader's own turn. A bookmark that follows would promise that it was sent.
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(watcher.push, event)
    assert await reading == ["one"]


async def test_the_window_is_bounded_in_bytes_over_all_tables(store: SqliteStore) -> None:
    cache = WatchCache(store, make_word, window_limit_bytes=20_000)
    await cache.load()
    small = await store.put("small/1", b"x", 0)
    await store.put("small/2", b"x", 0)
    first = await store.put("big/1", b"x", 0)
    for i in range(2, 60):
        await store.put(f"big/{i}", b"x" * 1000, 0)
        assert cache.window_bytes <= 20_000
    with pytest.raises(CompactedError):
        cache.watch("big/", first, text)
    # A small table does not pay for a large one.
    assert await cache.watch("small/", small, text).next_batch() == ["x"]


async def test_a_replay_too_long_for_a_queue_is_a_list_again(store: SqliteStore) -> None:
    cache = WatchCache(store, make_word, budget=QueueBudget(queue_bytes=1000))
    await cache.load()
    start = cache.revision
    for i in range(5):
        await store.put(f"a/{i}", b"x" * 300, 0)
    with pytest.raises(CompactedError):
        cache.watch("a/", start, text)
    assert cache.queued_bytes == 0


async def test_a_batch_brings_the_cache_to_its_last_revision(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    seen: list[tuple[int, int]] = []
    store.listen(lambda changes: seen.append((changes[-1].revision, cache.revision)))
    await asyncio.gather(*(store.put(f"a/{i}", b"", 0) for i in range(50)))
    assert len(seen) < 50
    assert all(committed == cached for committed, cached in seen)
    assert cache.revision == store.revision


async def test_a_watch_from_the_past_of_an_earlier_process_is_served(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        first = await store.put("a/1", b"one", 0)
        second = await store.put("a/1", b"uno", first)
        third = await store.put("a/2", b"two", 0)
        await store.compact(second)
        await store.delete("a/2", b"two", third)
        await store.put("a/1", b"un", second)
    async with SqliteStore(tmp_path / "s.db") as store:
        cache = WatchCache(store, make_word)
        await cache.load()
        watcher = cache.watch(
            "a/", second, lambda event: (event.type, event.item.text, event.before)
        )
        assert await watcher.next_batch() == [
            ("ADDED", "two", None),
            ("DELETED", "two", Word("a/2", third, "two")),
            ("MODIFIED", "un", Word("a/1", second, "uno")),
        ]
        assert [word.text for word in cache.scan("a/")] == ["un"]
        assert cache.revision == store.revision
        with pytest.raises(CompactedError):
            cache.watch("a/", first, text)
        # Nothing ever happened there.
        assert await cache.watch("b/", second, text).next_batch(timeout_s=0) == []


async def test_keys_above_every_code_point_are_scanned(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    keys = ["a/\U0010ffff", "a/\U0010ffff\U0010ffff", "a/\U0010ffffz", "a/x"]
    for key in keys:
        await store.put(key, b"", 0)
    await store.put("b/x", b"", 0)
    assert sorted(keys) == [word.key for word in cache.scan("a/")]
    assert cache.count("a/") == len(keys)


async def test_the_window_counts_what_an_item_was_before_too(tmp_path: Path) -> None:
    async with SqliteStore(tmp_path / "s.db") as store:
        cache = WatchCache(store, make_word)
        await cache.load()
        steps = [cache.window_bytes]
        revision = await store.put("a/1", b"x" * 1000, 0)
        steps.append(cache.window_bytes)
        revision = await store.put("a/1", b"y" * 10, revision)
        steps.append(cache.window_bytes)
        await store.delete("a/1", b"z" * 10, revision)
        steps.append(cache.window_bytes)
        created, changed, removed = (after - before for before, after in itertools.pairwise(steps))
        assert created > 1000
        # The change holds the former item as well as the new one.
        assert changed > created
        assert changed - created < 100
        assert 0 < removed < changed


async def test_a_watcher_that_is_closed_or_ended_is_let_go_of() -> None:
    budget = QueueBudget()
    for end in (Watcher.close, Watcher.overflow):
        watcher: Watcher[Any, Any] = Watcher(lambda event: event, 0, budget)
        end(watcher)
        kept = weakref.ref(watcher)
        del watcher
        gc.collect()
        assert kept() is None


async def test_what_is_whole_has_no_damage(store: SqliteStore, cache: WatchCache[Word]) -> None:
    await store.put("a/1", b"one", 0)
    for prefix in ("a/", "b/"):
        assert list(cache.damage_under(prefix)) == []
    assert cache.damage("a/1") is None
    assert cache.damage("b/1") is None
    assert cache.get("b/1") is None
    assert cache.count("b/") == 0


async def test_a_revision_that_is_here_is_not_waited_for(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    revision = await store.put("a/1", b"one", 0)
    for number in (0, revision - 1, revision):
        assert await cache.wait_for(number, timeout_s=0) is True
    assert await cache.wait_for(revision + 1, timeout_s=0) is False
