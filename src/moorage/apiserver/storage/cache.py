"""Watch cache: the present items of a store in memory and a window of recent events.

Reads and watches never touch the disk. An item is decoded once, when its change is committed, and
shared by all readers; watchers get references, not copies. Each table (the part of a key before its
first slash) keeps its recent events, so a watch can start at a recent revision, also of an earlier
process; one that starts before the window gets CompactedError and lists again. The windows are
bounded in events and, all together, in bytes. Hot path: `_apply`, per change and interested
watcher (bench/hotpaths.py).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from moorage.apiserver.storage.shared_queue import QueueBudget, SharedQueue
from moorage.apiserver.storage.store import (
    Change,
    CompactedError,
    Damage,
    Page,
    Store,
    StoreBrokenError,
    prefix_end,
)
from moorage.apiserver.storage.watcher import Watcher

WINDOW_EVENTS = 4096
WINDOW_BYTES = 64 * 1024 * 1024
"""Byte limit of all windows together."""

# Memory of an event besides its items.
_EVENT_BYTES = 256
# Scans remembered for each table; they hold references only.
_SCANS = 16

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"


class Item(Protocol):
    """A decoded value as the cache sees it."""

    @property
    def key(self) -> str: ...

    @property
    def revision(self) -> int: ...

    @property
    def size(self) -> int:
        """Return the bytes it keeps in memory."""


I = TypeVar("I", bound=Item)  # noqa: E741 - the cache's item type
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class CacheEvent(Generic[I]):
    """One change: the item after it (or the last one, when deleted) and the item before."""

    type: str
    revision: int
    item: I
    before: I | None


class _Sharing(Generic[I]):
    """Watchers with the same frames, and their queue."""

    __slots__ = ("queue", "watchers")

    def __init__(self, queue: SharedQueue[CacheEvent[I], Any]) -> None:
        self.queue = queue
        self.watchers: dict[Watcher[CacheEvent[I], Any], None] = {}


class _Table(Generic[I]):
    """The items that share the first part of their keys."""

    __slots__ = (
        "damaged",
        "events",
        "keys",
        "most_events",
        "scans",
        "shared",
        "sizes",
        "started",
        "watchers",
        "window",
    )

    def __init__(self, started: int, most_events: int) -> None:
        self.most_events = most_events
        self.keys: list[str] = []
        self.scans: dict[str, Sequence[I]] = {}
        """The items under prefixes that were scanned since the last change."""
        self.damaged: dict[str, Damage] = {}
        self.events: deque[CacheEvent[I]] = deque()
        self.sizes: deque[int] = deque()
        self.window = 0
        """Size of the window in bytes."""
        self.watchers: dict[Watcher[CacheEvent[I], Any], str] = {}
        """Watchers with a queue of their own, and the prefix of each."""
        self.shared: dict[tuple[str, Hashable], _Sharing[I]] = {}
        """Watchers that share a queue, by prefix and what they see."""
        self.started = started
        """The window holds every event after this revision."""

    def record(self, event: CacheEvent[I]) -> int:
        """Add an event to the window. Returns the bytes added."""
        size = _EVENT_BYTES + event.item.size
        if event.before is not None:
            size += event.before.size
        self.events.append(event)
        self.sizes.append(size)
        self.window += size
        if len(self.events) > self.most_events:
            size -= self.forget_oldest()
        return size

    def forget_oldest(self) -> int:
        """Drop the oldest event of the window. Returns the bytes freed."""
        self.started = self.events.popleft().revision
        size = self.sizes.popleft()
        self.window -= size
        return size


class WatchCache(Generic[I]):
    """The present items of a store. `make` builds one from a change's key, revision and value.

    A table's window has `window_events` at most, all windows together `window_limit_bytes`.
    """

    def __init__(
        self,
        store: Store,
        make: Callable[[str, int, bytes], I],
        *,
        budget: QueueBudget | None = None,
        window_events: int = WINDOW_EVENTS,
        window_limit_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._store = store
        self._make = make
        self._budget = budget or QueueBudget()
        self._window_events = window_events
        self._window_limit_bytes = window_limit_bytes
        self._items: dict[str, I] = {}
        self._tables: dict[str, _Table[I]] = {}
        self._window = 0
        self._floor = 0
        self._revision = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    async def load(self) -> None:
        """Load the store and follow its changes. Call once, before the first read.

        Reads an earlier state and replays the log on it, which fills the windows.
        """
        store = self._store
        floor = store.replay_floor
        page = await store.range("", revision=floor)
        try:
            changes = await store.history("", floor)
        except StoreBrokenError:
            # Damaged since the store was opened: falls back to the present state.
            floor, changes = store.revision, []
            page = await store.range("")
        self._start_at(floor, page)
        if changes:
            self._on_changes(changes)
        self._revision = store.revision
        for damage in store.damage:
            table = self._table(damage.key)
            table.damaged[damage.key] = damage
            # An index can supply the damaged part of a row; the key counts as damaged anyway.
            if self._items.pop(damage.key, None) is not None:
                table.keys.remove(damage.key)
        store.listen(self._on_changes)

    def _start_at(self, floor: int, page: Page) -> None:
        self._floor = self._revision = floor
        for entry in page.entries:
            table = self._table(entry.key)
            self._items[entry.key] = self._make(entry.key, entry.revision, entry.value)
            table.keys.append(entry.key)
        for damage in page.damage:
            self._table(damage.key).damaged[damage.key] = damage

    @property
    def revision(self) -> int:
        """Return the revision that the cache is current at."""
        return self._revision

    @property
    def queued_bytes(self) -> int:
        """Return the bytes that the queues of all watchers hold."""
        return self._budget.used

    @property
    def window_bytes(self) -> int:
        """Return the bytes that the windows of all tables hold, including present items."""
        return self._window

    def get(self, key: str) -> I | None:
        """Return the item of a key, None without one. Hot path: every read, ten of a write."""
        return self._items.get(key)

    def damage(self, key: str) -> Damage | None:
        """Return the damage of a present key whose value cannot be read; None for other keys."""
        table = self._tables.get(_table_name(key))
        return table.damaged.get(key) if table else None

    def damage_under(self, prefix: str) -> Sequence[Damage]:
        """Return the damage among the present keys under a prefix."""
        table = self._tables.get(_table_name(prefix))
        if table is None or not table.damaged:
            return ()
        return [item for key, item in table.damaged.items() if key.startswith(prefix)]

    def scan(self, prefix: str) -> Sequence[I]:
        """Return the items under a prefix, in key order: the same sequence until one changes."""
        table = self._tables.get(_table_name(prefix))
        if table is None or not table.keys:
            return ()
        items = table.scans.get(prefix)
        if items is None:
            first, last = _bounds(table.keys, prefix)
            items = tuple(map(self._items.__getitem__, table.keys[first:last]))
            if len(table.scans) >= _SCANS:
                table.scans.clear()
            table.scans[prefix] = items
        return items

    def count(self, prefix: str) -> int:
        """Return the number of items under a prefix."""
        table = self._tables.get(_table_name(prefix))
        if table is None:
            return 0
        first, last = _bounds(table.keys, prefix)
        return last - first

    def watch(
        self,
        prefix: str,
        after: int,
        select: Callable[[CacheEvent[I]], W | None],
        sees: Hashable = None,
    ) -> Watcher[CacheEvent[I], W]:
        """Follow the changes under a prefix after a revision; end it with `unwatch`.

        Watchers with equal `sees` have a `select` that returns the same for each event; they share
        a queue. Raises CompactedError when the window no longer reaches back that far.
        """
        table = self._table(prefix)
        if after < table.started:
            raise CompactedError(after, table.started)
        watcher = Watcher(select, after, self._budget)
        for event in table.events:
            if event.item.key.startswith(prefix):
                watcher.push(event)
        if watcher.is_overflowed:
            # More events than a queue may hold: a list is cheaper.
            raise CompactedError(after, self._revision)
        if sees is None or after > self._revision:
            # A shared queue holds nothing that one of its readers would have to leave out.
            table.watchers[watcher] = prefix
            return watcher
        place = (prefix, sees)
        sharing = table.shared.get(place)
        if sharing is None:
            sharing = table.shared[place] = _Sharing(SharedQueue(select, self._budget))
        sharing.watchers[watcher] = None
        watcher.share(sharing.queue)
        return watcher

    def unwatch(
        self, prefix: str, watcher: Watcher[CacheEvent[I], W], sees: Hashable = None
    ) -> None:
        """End a watch; `prefix` and `sees` as they were given to `watch`."""
        table, place = self._table(prefix), (prefix, sees)
        table.watchers.pop(watcher, None)
        if (sharing := table.shared.get(place)) is not None:
            sharing.watchers.pop(watcher, None)
            if not sharing.watchers:
                del table.shared[place]
        watcher.close()

    def finish_watches(self, prefix: str) -> None:
        """End the watches of a table, each once its queue is read."""
        table = self._table(prefix)
        for watcher in (
            *table.watchers,
            *(watcher for sharing in table.shared.values() for watcher in sharing.watchers),
        ):
            watcher.finish()

    async def wait_for(self, revision: int, timeout_s: float) -> bool:
        """Wait until the cache reaches a revision. Returns False on timeout."""
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
            # The table has had no events since the cache was loaded.
            table = self._tables[name] = _Table(self._floor, self._window_events)
        return table

    def _on_changes(self, changes: list[Change]) -> None:
        for change in changes:
            self._apply(change)
        self._revision = changes[-1].revision
        for arrived, revision in self._waiting.items():
            if revision <= self._revision and not arrived.done():
                arrived.set_result(None)

    def _apply(self, change: Change) -> None:
        table = self._table(change.key)
        key = change.key
        table.scans.clear()
        before = self._items.get(key)
        item = self._make(key, change.revision, change.value)
        if table.damaged:
            table.damaged.pop(key, None)
        if change.is_deletion:
            kind = DELETED
            if before is not None:
                del self._items[key]
                del table.keys[bisect_left(table.keys, key)]
        else:
            kind = MODIFIED if before is not None else ADDED
            self._items[key] = item
            if before is None:
                insort(table.keys, key)
        event = CacheEvent(kind, change.revision, item, before)
        self._window += table.record(event)
        while self._window > self._window_limit_bytes:
            longest = max(self._tables.values(), key=lambda table: table.window)
            self._window -= longest.forget_oldest()
        for watcher, prefix in table.watchers.items():
            if key.startswith(prefix):
                watcher.push(event)
        for (prefix, _), sharing in table.shared.items():
            if key.startswith(prefix):
                sharing.queue.push(event)


def _bounds(keys: list[str], prefix: str) -> tuple[int, int]:
    """Return the index range of the keys under a prefix in a sorted list."""
    end = prefix_end(prefix)
    return bisect_left(keys, prefix), bisect_left(keys, end) if end else len(keys)


def _table_name(key: str) -> str:
    return key.partition("/")[0]
