"""Protobuf lists: a list as one message, whose length comes before its items.

So every item is encoded before the first is sent, in steps between which other requests run. What
does not fit into a few MiB is encoded once more while the list is sent: a list of any length
occupies bounded memory. Hot path: a join of kept messages (bench/api.py, bench/large_store.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import msgspec

from moorage.apiserver.endpoints.list_body import BATCH_BYTES
from moorage.apiserver.registry.schema.protobuf_encoder import delimited, enveloped_head
from moorage.apiserver.registry.stored import Stored

_KEPT_BYTES = 16 * 1024 * 1024
_TURN_S = 0.002

Encode = Callable[[Stored], bytes]
"""Returns the message of an item."""


class ProtobufList(msgspec.Struct):
    """The message of a list in its envelope. `held_bytes` is about the memory of its items."""

    head: bytes
    items: Sequence[Stored]
    encode: Encode
    encoded: list[bytes | None]
    """The messages of the items; None for those to encode once more."""
    length: int
    """The bytes of the message without its envelope."""
    held_bytes: int

    def pieces(self, *, is_indented: bool = False) -> Iterator[bytes]:
        """Yield the message; it has no indented form."""
        del is_indented
        batch, size = [self.head], 0
        for index, item in enumerate(self.items):
            message = self.encoded[index]
            field = delimited(2, self.encode(item) if message is None else message)
            batch.append(field)
            size += len(field)
            if size >= BATCH_BYTES:
                yield b"".join(batch)
                batch, size = [], 0
        if batch:
            yield b"".join(batch)


async def protobuf_list(
    items: Sequence[Stored],
    encode: Encode,
    *,
    api_version: str,
    kind: str,
    list_meta: bytes,
    held_bytes: int,
) -> ProtobufList:
    """Encode the items of a list. `list_meta` is the message of its metadata."""
    encoded: list[bytes | None] = []
    meta = delimited(1, list_meta)
    length, kept = len(meta), 0
    loop = asyncio.get_running_loop()
    turn_ends = loop.time() + _TURN_S
    for item in items:
        message = encode(item)
        size = len(message)
        length += 1 + _varint_bytes(size) + size
        is_kept = kept + size <= _KEPT_BYTES
        kept += size if is_kept else 0
        encoded.append(message if is_kept else None)
        if loop.time() > turn_ends:
            await asyncio.sleep(0)
            turn_ends = loop.time() + _TURN_S
    head = enveloped_head(api_version, kind, length) + meta
    return ProtobufList(head, items, encode, encoded, length, held_bytes)


def _varint_bytes(value: int) -> int:
    """Return the length of a varint."""
    return max(1, (value.bit_length() + 6) // 7)
