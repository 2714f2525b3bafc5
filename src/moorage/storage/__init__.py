"""Storage: a versioned key-value store with one revision per change and a log of changes.

Keys and values are opaque here. A `Store` makes writes durable; the `WatchCache` in
front of it answers reads and watches from memory.
"""

from moorage.storage.cache import (
    CacheEvent,
    Item,
    WatchCache,
)
from moorage.storage.copying import accept_copy, check_copy, copy_database
from moorage.storage.inspection import Inspection, inspect
from moorage.storage.loss import check_kept
from moorage.storage.mark import Recorded, accept_loss
from moorage.storage.queue_budget import QueueBudget
from moorage.storage.sqlite import SqliteStore
from moorage.storage.store import (
    Change,
    CompactedError,
    Damage,
    Entry,
    Page,
    RevisionConflictError,
    Store,
    StoreBrokenError,
)
from moorage.storage.watcher import Watcher, WatcherOverflowError

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
