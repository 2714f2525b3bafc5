"""List body: the document of a list, encoded while it is sent.

A list is its head, its items in batches, and its end. A batch is encoded when the client has read
the one before it, so a list of any length occupies the memory of one batch besides the stored
items. Hot path: a join of stored bytes per batch (bench/api.py, bench/large_store.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from operator import attrgetter

import msgspec

from moorage.apiserver.registry.listing import Listed
from moorage.apiserver.registry.stored import Stored

BATCH_BYTES = 64 * 1024
_END = b"]}\n"
_INDENT = 2


class ListBody(msgspec.Struct):
    """The JSON of a list: `head` ends with the opening bracket of the items.

    Each of `batches` is the JSON of one or more items, separated by commas; those after the first
    begin with a comma. `held_bytes` is about the memory of the stored items, which lives until the
    list is sent. Readable once.
    """

    head: bytes
    batches: Iterator[bytes]
    held_bytes: int

    def whole_below(self, limit: int) -> bytes | None:
        """Return the whole document if its items have at most `limit` bytes, else None."""
        first: list[bytes] = []
        size = 0
        for batch in self.batches:
            first.append(batch)
            size += len(batch)
            if size > limit:
                self.batches = chain(first, self.batches)
                return None
        return b"".join((self.head, *first, _END))

    def pieces(self, *, is_indented: bool = False) -> Iterator[bytes]:
        """Yield the document; indented as `msgspec.json.format` would do it whole."""
        if not is_indented:
            yield self.head
            yield from self.batches
            yield _END
            return
        empty = msgspec.json.format(self.head + b"]}", indent=_INDENT)
        yield empty.rpartition(b"]")[0]
        yield from map(_indented_items, self.batches)
        yield b"\n" + b" " * _INDENT + b"]\n}"

    def whole(self) -> bytes:
        """Return the document."""
        return b"".join(self.pieces())


def batched(items: Iterable[bytes], limit: int = BATCH_BYTES) -> Iterator[bytes]:
    """Join encoded items to batches, each of the limit or one item more."""
    comma = b""
    batch: list[bytes] = []
    size = 0
    for item in items:
        batch.append(item)
        size += len(item)
        if size >= limit:
            yield comma + b",".join(batch)
            comma, batch, size = b",", [], 0
    if batch:
        yield comma + b",".join(batch)


def joined(tails: Sequence[bytes], limit: int = BATCH_BYTES) -> Iterator[bytes]:
    """Join items without their opening braces to batches, each within the limit or of one item.

    Stored bytes are copied once, and nothing is done for each item in Python.
    """
    ends = list(accumulate(map(len, tails)))
    first = before = 0
    while first < len(tails):
        last = max(bisect_right(ends, before + limit, first), first + 1)
        opening = (b"", tails[first]) if first else (b"{" + tails[first],)
        yield b",{".join((*opening, *tails[first + 1 : last]))
        first, before = last, ends[last - 1]


def _indented_items(batch: bytes) -> bytes:
    """Return the items of a batch as lines one level deeper, without brackets."""
    items = batch.removeprefix(b",")
    lines = msgspec.json.format(b"[" + items + b"]", indent=_INDENT)[1:-2]
    # JSON text has no line break within a value.
    lines = lines.replace(b"\n", b"\n" + b" " * _INDENT)
    return lines if items is batch else b"," + lines


# Kept batches: the joined items of collections that are listed again without a change.
#
#     first list ─▶ joined while it is sent, second ─▶ joined and kept, later ones ─▶ what is kept
#
# The watch cache returns the same sequence for a collection until an object in it changes, so a
# comparison by identity says whether the batches are still those of the present items. Long
# collections are never kept. Hot path: one dictionary lookup per list (bench/requests.py).

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
