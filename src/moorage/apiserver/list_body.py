"""List body: the document of a list, encoded while it is sent.

A list is its head, its items in batches, and its end. A batch is encoded when the client has read
the one before it, so a list of any length occupies the memory of one batch besides the stored
items. Hot path: a join of stored bytes per batch (bench/api.py, bench/large_store.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

BATCH_BYTES = 64 * 1024
_END = b"]}\n"
_INDENT = 2


class ListBody(msgspec.Struct):
    """The JSON of a list: `head` ends with the opening bracket of the items.

    Each of `batches` is the JSON of one or more items, separated by commas. `held_bytes` is about
    the memory of the stored items, which lives until the list is sent. Readable once.
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
        return b"%b%b]}\n" % (self.head, b",".join(first))

    def pieces(self, *, is_indented: bool = False) -> Iterator[bytes]:
        """Yield the document; indented as `msgspec.json.format` would do it whole."""
        if not is_indented:
            yield from _separated(self.head, self.batches, _END)
            return
        empty = msgspec.json.format(self.head + b"]}", indent=_INDENT)
        head = empty.rpartition(b"]")[0]
        batches = map(_indented_items, self.batches)
        yield from _separated(head, batches, b"\n" + b" " * _INDENT + b"]\n}")

    def whole(self) -> bytes:
        """Return the document."""
        return b"".join(self.pieces())


def batched(
    items: Iterable[bytes], limit: int = BATCH_BYTES, opening: bytes = b""
) -> Iterator[bytes]:
    """Join encoded items to batches, each of the limit or one item more.

    `opening` is put before each item; so stored bytes are copied once, with all others.
    """
    separator = b"," + opening
    batch: list[bytes] = []
    size = 0
    for item in items:
        batch.append(item if batch else opening + item)
        size += len(item)
        if size >= limit:
            yield separator.join(batch)
            batch, size = [], 0
    if batch:
        yield separator.join(batch)


def _separated(head: bytes, batches: Iterator[bytes], end: bytes) -> Iterator[bytes]:
    yield head + next(batches, b"")
    for batch in batches:
        yield b"," + batch
    yield end


def _indented_items(batch: bytes) -> bytes:
    """Return the items of a batch as lines one level deeper, without brackets."""
    lines = msgspec.json.format(b"[" + batch + b"]", indent=_INDENT)[1:-2]
    # JSON text has no line break within a value.
    return lines.replace(b"\n", b"\n" + b" " * _INDENT)
