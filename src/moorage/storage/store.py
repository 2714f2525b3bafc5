"""The seam between the API and whatever keeps its data.

A store is a log: each change has the next revision, a key's present state is its last change, and
older states can be read until they are compacted. Every implementation passes the same suite
(tests/storage/suite.py). Source: the shape is etcd's MVCC, as the API's resourceVersion rules
need it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class StoreBrokenError(Exception):
    """A write could not be made durable (disk full, I/O error). Nothing of it is visible."""


class RevisionConflictError(Exception):
    """The key is not at the revision the writer expected."""

    def __init__(self, key: str, expected: int, current: int) -> None:
        super().__init__(f"{key}: expected revision {expected}, found {current}")
        self.key = key
        self.current = current


class CompactedError(Exception):
    """The revision asked for is no longer kept."""

    def __init__(self, revision: int, compacted: int) -> None:
        super().__init__(f"revision {revision} is compacted (oldest kept: {compacted})")
        self.revision = revision
        self.compacted = compacted


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's value as of one revision."""

    key: str
    revision: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """One step of the log. `value` is the new value, or the last one when `is_deletion`.

    `previous` is the revision the key had before, 0 when it did not exist.
    """

    key: str
    revision: int
    value: bytes
    previous: int = 0
    is_deletion: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Entries in key order, read at one revision; `has_more` when the limit cut them."""

    revision: int
    entries: list[Entry]
    has_more: bool = False


Listener = Callable[[list[Change]], None]
"""Told of changes that are durable now, in the order of their revisions. Must not block."""


class Store(Protocol):
    """A durable, ordered, versioned map. All methods are called from one event loop."""

    async def put(self, key: str, value: bytes, expected: int) -> int:
        """Write a key and return the change's revision once it is durable.

        `expected` is the revision the key must have now, 0 for a new key. Listeners have heard of
        the change when this returns. Raises RevisionConflictError, StoreBrokenError.
        """

    async def delete(self, key: str, last: bytes, expected: int) -> int:
        """Remove a key that is at `expected`, logging its last value; otherwise as `put`."""

    async def range(
        self,
        prefix: str,
        *,
        revision: int | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> Page:
        """The entries under a prefix, now or at an older revision, following the key `after`.

        Raises CompactedError when that revision is gone.
        """

    async def history(self, prefix: str, after: int) -> list[Change]:
        """The changes under a prefix since a revision. Raises CompactedError."""

    async def compact(self, revision: int) -> None:
        """Forget states that were superseded at or before a revision."""

    def listen(self, listener: Listener) -> None:
        """Hear of every change from now on."""

    @property
    def revision(self) -> int:
        """The revision of the last durable change."""

    @property
    def compacted(self) -> int:
        """States before this revision may be gone."""
