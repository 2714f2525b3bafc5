"""Storage: a versioned key-value store with one revision per change and a log of changes.

Keys and values are opaque here. A `Store` makes writes durable; the `WatchCache` in
front of it answers reads and watches from memory.
"""

from moorage.apiserver.storage.cache import CacheEvent, Item, WatchCache
from moorage.apiserver.storage.copying import accept_copy, check_copy, copy_database
from moorage.apiserver.storage.inspection import Inspection, inspect
from moorage.apiserver.storage.loss import check_kept
from moorage.apiserver.storage.mark import Recorded, accept_loss
from moorage.apiserver.storage.shared_queue import QueueBudget
from moorage.apiserver.storage.sqlite import SqliteStore
from moorage.apiserver.storage.store import (
    Change,
    CompactedError,
    Damage,
    Entry,
    Page,
    RevisionConflictError,
    Store,
    StoreBrokenError,
)
from moorage.apiserver.storage.watcher import Watcher, WatcherOverflowError

__all__ = [
    "CacheEvent",
    "Change",
    "CompactedError",
    "Damage",
    "Entry",
    "Inspection",
    "Item",
    "Page",
    "QueueBudget",
    "Recorded",
    "RevisionConflictError",
    "SqliteStore",
    "Store",
    "StoreBrokenError",
    "WatchCache",
    "Watcher",
    "WatcherOverflowError",
    "accept_copy",
    "accept_loss",
    "check_copy",
    "check_kept",
    "copy_database",
    "inspect",
]
