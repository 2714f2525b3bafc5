"""Store interface: the seam between the API and its storage backend.

A store is a log: each change has the next revision, a key's present state is its last change, and
older states can be read until they are compacted. Every implementation passes the same suite
(tests/apiserver/storage/suite.py). Source: the shape is etcd's MVCC, as the API's resourceVersion
rules need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

# Key ranges: where the keys under a prefix end.
#
# Python compares strings by code point and SQLite's BINARY collation by UTF-8 bytes; both give the
# same order.

_LAST_CODE_POINT = 0x10FFFF
_BEFORE_SURROGATES, _AFTER_SURROGATES = 0xD7FF, 0xE000


def prefix_end(prefix: str) -> str:
    """Return the least string above every string that starts with `prefix`, "" if there is none.

    A suffix such as U+10FFFF is not such a bound: a key may continue after it.
    """
    text = prefix.rstrip(chr(_LAST_CODE_POINT))
    if not text:
        return ""
    last = ord(text[-1])
    following = _AFTER_SURROGATES if last == _BEFORE_SURROGATES else last + 1
    return text[:-1] + chr(following)


class StoreBrokenError(Exception):
    """A write could not be made durable (disk full, I/O error). Nothing of it is visible."""


class RevisionConflictError(Exception):
    """The key is not at the revision the writer expected."""

    def __init__(self, key: str, expected: int, current: int) -> None:
        super().__init__(f"{key}: expected revision {expected}, found {current}")
        self.current = current


class CompactedError(Exception):
    """The requested revision is compacted."""

    def __init__(self, revision: int, compacted: int) -> None:
        super().__init__(f"revision {revision} is compacted (oldest kept: {compacted})")
        self.revision = revision
        self.compacted = compacted


class Entry(msgspec.Struct, frozen=True):
    """A key's value as of one revision."""

    key: str
    revision: int
    value: bytes


class Change(msgspec.Struct, frozen=True):
    """One entry of the log. `value` is the new value, or the last one when `is_deletion`.

    `previous` is the revision the key had before, 0 when it did not exist.
    """

    key: str
    revision: int
    value: bytes
    previous: int = 0
    is_deletion: bool = False


class Damage(msgspec.Struct, frozen=True):
    """A change that can no longer be read as it was written. `key` is "" if even that is lost."""

    key: str
    revision: int

    def __str__(self) -> str:
        return f"{self.key or '(unknown key)'} at revision {self.revision} is damaged in the store"


class Page(msgspec.Struct, frozen=True):
    """Entries in key order, read at one revision; `has_more` when the limit truncated them.

    `last` is the last key looked at: the next page follows it. `damage` names the keys that exist
    and whose values cannot be read.
    """

    revision: int
    entries: list[Entry]
    has_more: bool = False
    last: str = ""
    damage: Sequence[Damage] = ()


Listener = Callable[[list[Change]], None]
"""Receives changes once they are durable, in order of revision. Must not block."""


class Store(Protocol):
    """A durable, ordered, versioned map. All methods are called from one event loop."""

    async def put(
        self, key: str, value: bytes, expected: int, *, may_use_reserve: bool = False
    ) -> int:
        """Write a key and return the change's revision once it is durable.

        `expected` is the revision the key must have now, 0 for a new key. Listeners have received
        the change when this returns. `may_use_reserve`: a step of a deletion, which is accepted on
        a full disk too. Raises RevisionConflictError, StoreBrokenError.
        """

    async def delete(self, key: str, last: bytes, expected: int) -> int:
        """Remove a key that is at `expected`, logging its last value; otherwise as `put`.

        Accepted on a full disk too.
        """

    async def range(
        self,
        prefix: str,
        *,
        revision: int | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> Page:
        """Return the entries under a prefix, now or at an older revision, after the key `after`.

        Raises CompactedError when that revision is compacted, also during the read.
        """

    async def history(self, prefix: str, after: int) -> list[Change]:
        """Return the changes under a prefix since a revision.

        Raises CompactedError, also when the revision is compacted during the read;
        StoreBrokenError when one of the changes is damaged.
        """

    async def compact(self, revision: int) -> None:
        """Remove states that were superseded at or before a revision.

        Reads of them are refused from the call on, before they are removed. Raises StoreBrokenError
        when they cannot be removed; a later compaction removes them too.
        """

    def listen(self, listener: Listener) -> None:
        """Call `listener` with every change from now on."""

    @property
    def revision(self) -> int:
        """Return the revision of the last durable change."""

    @property
    def compacted(self) -> int:
        """States before this revision may be gone."""

    @property
    def identity(self) -> str:
        """Unique name of this store, created with it and never changed."""

    @property
    def replay_floor(self) -> int:
        """Return the revision after which all changes were intact and few enough to replay."""

    @property
    def damage(self) -> Sequence[Damage]:
        """Return the present keys whose values were found damaged at open."""
