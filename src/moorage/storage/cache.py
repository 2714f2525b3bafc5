"""Everything the store holds, in memory, and a window of what changed.

Reads and watches never touch the disk. An item is made once from its bytes when it is committed
and shared by every reader; a watcher gets references, not copies. Each table (the part of a key
before its first slash) keeps its recent events, so a watch can start a little in the past; one that
starts earlier is told so and lists again. Hot path: `_apply`, per change and interested watcher
(bench/hotpaths.py).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from moorage.storage.store import Change, CompactedError, Store

WINDOW_EVENTS = 4096
WATCHER_LIMIT = 16384

_AFTER_EVERY_KEY = "\U0010ffff"

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


class Item(Protocol):
    """What the cache needs to know of whatever is made from a value."""

    @property
    def key(self) -> str: ...

    @property
    def revision(self) -> int: ...


I = TypeVar("I", bound=Item)  # noqa: E741 - the cache's item type
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class CacheEvent(Generic[I]):
    """One change: the item after it (or the last one, when deleted) and the item before."""

    type: str
    revision: int
    item: I
    before: I | None


class WatcherOverflowError(Exception):
    """The reader of a watch fell too far behind; its stream ends and the client starts again."""


class Watcher(Generic[I, W]):
    """What one watch has yet to send. `select` turns an event into what is queued, or None."""

    def __init__(self, select: Callable[[CacheEvent[I]], W | None], after: int) -> None:
        self._select = select
        self._after = after
        self._queued: deque[W] = deque()
        self._wake = asyncio.Event()
        self._is_overflowed = False

    def push(self, event: CacheEvent[I]) -> None:
        if event.revision <= self._after or self._is_overflowed:
            return
        selected = self._select(event)
        if selected is None:
            return
        if len(self._queued) >= WATCHER_LIMIT:
            self._is_overflowed = True
            self._queued.clear()
        else:
            self._queued.append(selected)
        self._wake.set()

    async def next_batch(self, timeout_s: float | None = None) -> list[W]:
        """All that is queued, waiting for the first; empty when the time is up.

        Raises WatcherOverflowError when events had to be dropped.
        """
        if not self._queued and not self._is_overflowed:
            self._wake.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake.wait()
            except TimeoutError:
                return []
        if self._is_overflowed:
            raise WatcherOverflowError
        batch = list(self._queued)
        self._queued.clear()
        return batch


class _Table(Generic[I]):
    """The items that share the first part of their keys."""

    __slots__ = ("events", "items", "keys", "started", "watchers")

    def __init__(self, started: int) -> None:
        self.items: dict[str, I] = {}
        self.keys: list[str] = []
        self.events: deque[CacheEvent[I]] = deque()
        self.watchers: dict[Watcher[I, Any], str] = {}
        self.started = started
        """The window holds every event after this revision."""

    def record(self, event: CacheEvent[I]) -> None:
        self.events.append(event)
        if len(self.events) > WINDOW_EVENTS:
            self.started = self.events.popleft().revision


class WatchCache(Generic[I]):
    """The present items of a store. `make` builds one from a change's key, revision and value."""

    def __init__(self, store: Store, make: Callable[[str, int, bytes], I]) -> None:
        self._store = store
        self._make = make
        self._tables: dict[str, _Table[I]] = {}
        self._revision = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def load(self) -> None:
        """Read everything, then follow the store. Call once, before anything is served."""
        page = await self._store.range("")
        self._revision = page.revision
        for entry in page.entries:
            table = self._table(entry.key)
            table.items[entry.key] = self._make(entry.key, entry.revision, entry.value)
            table.keys.append(entry.key)
        self._store.listen(self._hear)

    @property
    def revision(self) -> int:
        """The revision everything here is current at."""
        return self._revision

    def get(self, key: str) -> I | None:
        table = self._tables.get(_table_name(key))
        return table.items.get(key) if table else None

    def scan(self, prefix: str) -> list[I]:
        """The items under a prefix, in key order."""
        table = self._tables.get(_table_name(prefix))
        if table is None:
            return []
        first = bisect_left(table.keys, prefix)
        last = bisect_left(table.keys, prefix + _AFTER_EVERY_KEY)
        items = table.items
        return [items[key] for key in table.keys[first:last]]

    def count(self, prefix: str) -> int:
        """How many items are under a prefix."""
        table = self._tables.get(_table_name(prefix))
        if table is None:
            return 0
        end = bisect_left(table.keys, prefix + _AFTER_EVERY_KEY)
        return end - bisect_left(table.keys, prefix)

    def watch(
        self, prefix: str, after: int, select: Callable[[CacheEvent[I]], W | None]
    ) -> Watcher[I, W]:
        """Follow the changes under a prefix after a revision; end it with `unwatch`.

        Raises CompactedError when the window no longer reaches back that far.
        """
        table = self._table(prefix)
        if after < table.started:
            raise CompactedError(after, table.started)
        watcher = Watcher(select, after)
        for event in table.events:
            if event.item.key.startswith(prefix):
                watcher.push(event)
        table.watchers[watcher] = prefix
        return watcher

    def unwatch(self, prefix: str, watcher: Watcher[I, W]) -> None:
        self._table(prefix).watchers.pop(watcher, None)

    async def wait_for(self, revision: int, timeout_s: float) -> bool:
        """Wait until a revision is here; False when the time is up first."""
        if revision <= self._revision:
            return True
        arrived = asyncio.get_running_loop().create_future()
        self._waiting[arrived] = revision
        try:
            async with asyncio.timeout(timeout_s):
                await arrived
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(arrived, None)
        return True

    def _table(self, key: str) -> _Table[I]:
        name = _table_name(key)
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = _Table(self._revision)
        return table

    def _hear(self, changes: list[Change]) -> None:
        for change in changes:
            self._apply(change)
        self._revision = changes[-1].revision
        for arrived, revision in self._waiting.items():
            if revision <= self._revision and not arrived.done():
                arrived.set_result(None)

    def _apply(self, change: Change) -> None:
        table = self._table(change.key)
        key = change.key
        before = table.items.get(key)
        item = self._make(key, change.revision, change.value)
        if change.is_deletion:
            kind = DELETED
            if before is not None:
                del table.items[key]
                del table.keys[bisect_left(table.keys, key)]
        else:
            kind = MODIFIED if before is not None else ADDED
            table.items[key] = item
            if before is None:
                insort(table.keys, key)
        event = CacheEvent(kind, change.revision, item, before)
        table.record(event)
        for watcher, prefix in table.watchers.items():
            if key.startswith(prefix):
                watcher.push(event)


def _table_name(key: str) -> str:
    return key.partition("/")[0]
