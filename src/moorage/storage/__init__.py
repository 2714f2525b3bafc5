"""Keeping bytes under keys, with one revision for every change and a log of them.

Nothing here knows what a key or a value means. A `Store` makes writes durable; the `WatchCache` in
front of it answers reads and watches from memory.
"""

from moorage.storage.cache import (
    CacheEvent,
    Item,
    WatchCache,
    Watcher,
    WatcherOverflowError,
)
from moorage.storage.sqlite import SqliteStore
from moorage.storage.store import (
    Change,
    CompactedError,
    Entry,
    Page,
    RevisionConflictError,
    Store,
    StoreBrokenError,
)

__all__ = [
    "CacheEvent",
    "Change",
    "CompactedError",
    "Entry",
    "Item",
    "Page",
    "RevisionConflictError",
    "SqliteStore",
    "Store",
    "StoreBrokenError",
    "WatchCache",
    "Watcher",
    "WatcherOverflowError",
]
