"""Kept batches: the joined items of collections that are listed again without a change.

    first list ─▶ joined while it is sent, second ─▶ joined and kept, later ones ─▶ what is kept

The watch cache returns the same sequence for a collection until an object in it changes, so a
comparison by identity says whether the batches are still those of the present items. Long
collections are never kept. Hot path: one dictionary lookup per list (bench/requests.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

import msgspec

from moorage.apiserver.endpoints.list_body import joined
from moorage.apiserver.registry.listing import Listed
from moorage.apiserver.registry.stored import Stored

KEPT_BYTES = 4 * 1024 * 1024
"""Limit on what is kept together, superseded items that only this keeps alive included."""

# The longest collection that is kept, as a part of the limit.
_LONGEST_PART = 4
# Memory of an entry besides its items and batches.
_ENTRY_BYTES = 512

_tail = attrgetter("tail")


class _Collection(msgspec.Struct):
    """Items of a collection their length in bytes, and their batches once these are kept."""

    items: Sequence[Stored]
    length: int
    batches: tuple[bytes, ...] | None = None

    @property
    def size(self) -> int:
        """Return the bytes it may occupy."""
        return _ENTRY_BYTES + self.length * (1 if self.batches is None else 2)


class KeptBatches:
    """Joins the items of lists, which are sent as they are stored."""

    def __init__(self, limit_bytes: int = KEPT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: dict[str, _Collection] = {}
        self.bytes = 0
        """Bytes that are kept."""

    def of(self, listed: Listed) -> tuple[Iterator[bytes], int]:
        """Return the batches of a list as `joined` makes them, and the bytes of the items."""
        kept = self._kept.get(listed.collection)
        if kept is None or kept.items is not listed.items:
            tails = list(map(_tail, listed.items))
            kept = _Collection(listed.items, sum(map(len, tails)))
            if listed.collection and kept.length <= self._limit_bytes // _LONGEST_PART:
                self._keep(listed.collection, kept)
            return joined(tails), kept.length
        if kept.batches is None:
            self.bytes -= kept.size
            kept.batches = tuple(joined(list(map(_tail, kept.items))))
            self.bytes += kept.size
            self._drop_oldest()
        return iter(kept.batches), kept.length

    def _keep(self, name: str, collection: _Collection) -> None:
        if (before := self._kept.pop(name, None)) is not None:
            self.bytes -= before.size
        self._kept[name] = collection
        self.bytes += collection.size
        self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self.bytes > self._limit_bytes:
            self.bytes -= self._kept.pop(next(iter(self._kept))).size
