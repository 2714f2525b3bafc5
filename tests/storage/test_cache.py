from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from moorage.storage import (
    CacheEvent,
    CompactedError,
    SqliteStore,
    WatchCache,
    WatcherOverflowError,
)
from moorage.storage import cache as cache_module


@dataclass(frozen=True)
class Word:
    key: str
    revision: int
    text: str


def make_word(key: str, revision: int, value: bytes) -> Word:
    return Word(key, revision, value.decode())


def everything(event: CacheEvent[Word]) -> tuple[str, str]:
    return event.type, event.item.text


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
    assert cache.scan("c/") == []


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


async def test_a_watch_before_the_window_is_told_so(
    store: SqliteStore, cache: WatchCache[Word], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "WINDOW_EVENTS", 2)
    first = await store.put("a/1", b"1", 0)
    for i in range(2, 6):
        await store.put(f"a/{i}", b"", 0)
    with pytest.raises(CompactedError):
        cache.watch("a/", first, everything)


async def test_a_watcher_that_does_not_read_is_cut_off_not_queued_for_ever(
    store: SqliteStore, cache: WatchCache[Word], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "WATCHER_LIMIT", 3)
    watcher = cache.watch("a/", cache.revision, everything)
    for i in range(5):
        await store.put(f"a/{i}", b"", 0)
    with pytest.raises(WatcherOverflowError):
        await watcher.next_batch()


async def test_an_unwatched_watcher_hears_nothing_more(
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


async def test_the_item_before_a_change_comes_with_it(
    store: SqliteStore, cache: WatchCache[Word]
) -> None:
    first = await store.put("a/1", b"one", 0)
    watcher = cache.watch("a/", first, lambda event: event.before and event.before.text)
    await store.put("a/1", b"uno", first)
    assert await watcher.next_batch() == ["one"]
