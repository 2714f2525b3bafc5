"""List body: the document of a list, encoded while it is sent.

A list is its head, its items in batches, and its end. A batch is encoded when the client has read
the one before it, so a list of any length occupies the memory of one batch besides the stored
items. Hot path: a join of stored bytes per batch (bench/api.py, bench/large_store.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain

import msgspec

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
