"""Representations of objects and lists: full, as a Table, or metadata only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter

import msgspec

from moorage.api.errors import BadRequestError
from moorage.apiserver.endpoints.list_body import BATCH_BYTES, KeptBatches, ListBody, batched
from moorage.apiserver.endpoints.negotiation import PARTIAL, PARTIAL_LIST, TABLE, Representation
from moorage.apiserver.registry.codec import RESOURCE, Codec, Media
from moorage.apiserver.registry.columns.table import IncludeObject, render_row, render_table
from moorage.apiserver.registry.kind import Kind, Obj, Served
from moorage.apiserver.registry.listing import Listed
from moorage.apiserver.registry.schema.protobuf_encoder import delimited, enveloped, enveloped_head
from moorage.apiserver.registry.stored import Stored

# Protobuf lists: a list as one message, whose length comes before its items.
#
# So every item is encoded before the first is sent, in steps between which other requests run. What
# does not fit into a few MiB is encoded once more while the list is sent: a list of any length
# occupies bounded memory. Hot path: a join of kept messages (bench/api.py, bench/large_store.py).

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
    kept_bytes: int = _KEPT_BYTES,
    turn_s: float = _TURN_S,
) -> ProtobufList:
    """Encode the items of a list. `list_meta` is the message of its metadata.

    Keeps messages of `kept_bytes` at most; other tasks run after each `turn_s`.
    """
    encoded: list[bytes | None] = []
    meta = delimited(1, list_meta)
    length, kept = len(meta), 0
    loop = asyncio.get_running_loop()
    turn_ends = loop.time() + turn_s
    for item in items:
        message = encode(item)
        size = len(message)
        length += 1 + _varint_bytes(size) + size
        is_kept = kept + size <= kept_bytes
        kept += size if is_kept else 0
        encoded.append(message if is_kept else None)
        if loop.time() > turn_ends:
            await asyncio.sleep(0)
            turn_ends = loop.time() + turn_s
    head = enveloped_head(api_version, kind, length) + meta
    return ProtobufList(head, items, encode, encoded, length, held_bytes)


def _varint_bytes(value: int) -> int:
    """Return the length of a varint."""
    return max(1, (value.bit_length() + 6) // 7)


LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"


class _MetadataOnly(msgspec.Struct):
    metadata: msgspec.Raw


_metadata_decoder = msgspec.json.Decoder(_MetadataOnly)
_tail = attrgetter("tail")
_INCLUDE = {"": IncludeObject.METADATA, **{policy.value: policy for policy in IncludeObject}}


def object_body(
    codec: Codec,
    kind: Kind,
    served: Served,
    item: Stored,
    form: Representation,
    query: Mapping[str, str],
) -> bytes:
    """Return one object: its JSON, with the final newline, or its protobuf."""
    if form.media is Media.PROTOBUF:
        message = message_of(codec, served, form)
        return enveloped(*head_of(kind, served, form), message(item))
    match form.as_:
        case "":
            return codec.encode(kind, served, item) + b"\n"
        case "Table":
            listed = Listed([item], item.revision)
            return list_body(codec, kind, served, listed, form, query).whole()
        case _:
            return metadata_json(item, form.version) + b"\n"


def list_body(
    codec: Codec,
    kind: Kind,
    served: Served,
    listed: Listed,
    form: Representation,
    query: Mapping[str, str],
    kept: KeptBatches | None = None,
) -> ListBody:
    """Return the JSON of a list. Hot path: a join of stored bytes, or what is kept of one."""
    metadata = list_metadata(listed)
    if form.as_ == TABLE:
        head, rows = _table_parts(codec, kind, served, listed, form, query, metadata)
        return ListBody(head, batched(rows), _held_bytes(listed))
    is_partial = form.as_ == PARTIAL_LIST
    name, version = kind.list_kind, served.api_version
    if is_partial:
        name, version = PARTIAL_LIST, f"meta.k8s.io/{form.version}"
    head = b'%b"metadata":%b,"items":[' % (
        codec.prefix(name, version), msgspec.json.encode(metadata),
    )  # fmt: skip
    if not (is_partial or kind.is_custom or served.from_storage):
        return ListBody(head, *(kept or KeptBatches()).of(listed))
    if is_partial:
        items = (metadata_json(item, form.version) for item in listed.items)
    elif kind.is_custom:
        items = (codec.encode(kind, served, item) for item in listed.items)
    else:
        items = (codec.encode_item(served, item) for item in listed.items)
    return ListBody(head, batched(items), _held_bytes(listed))


def _held_bytes(listed: Listed) -> int:
    """Return about the memory of the items of a list."""
    return sum(map(len, map(_tail, listed.items)))


async def protobuf_body(
    codec: Codec, kind: Kind, served: Served, listed: Listed, form: Representation
) -> ProtobufList:
    """Return the protobuf of a list."""
    if form.as_ == PARTIAL_LIST:
        name, api_version = PARTIAL_LIST, f"meta.k8s.io/{form.version}"
    else:
        name, api_version = kind.list_kind, served.api_version
    return await protobuf_list(
        listed.items,
        message_of(codec, served, form),
        api_version=api_version,
        kind=name,
        list_meta=codec.to_message(LIST_META, list_metadata(listed)),
        held_bytes=_held_bytes(listed),
    )


def message_of(codec: Codec, served: Served, form: Representation) -> Callable[[Stored], bytes]:
    """Return the function that encodes objects, whole or their metadata alone, in protobuf."""
    if not form.as_:
        return partial(codec.message, served)

    def metadata_message(item: Stored) -> bytes:
        metadata = msgspec.json.decode(_metadata_decoder.decode(b"{" + item.tail).metadata)
        return codec.to_message(RESOURCE.name, {"metadata": metadata})

    return metadata_message


def head_of(kind: Kind, served: Served, form: Representation) -> tuple[str, str]:
    """Return the apiVersion and kind of one object in a form."""
    if form.as_:
        return f"meta.k8s.io/{form.version}", PARTIAL
    return served.api_version, kind.name


def list_metadata(listed: Listed) -> dict[str, str | int]:
    """Return the `metadata` of a list: revision, continue token, remaining count."""
    metadata: dict[str, str | int] = {"resourceVersion": str(listed.revision)}
    if listed.continue_:
        metadata["continue"] = listed.continue_
        if listed.remaining is not None:
            metadata["remainingItemCount"] = listed.remaining
    return metadata


def metadata_json(item: Stored, version: str) -> bytes:
    """Return the `PartialObjectMetadata` of an object from its stored bytes, undecoded."""
    metadata = _metadata_decoder.decode(b"{" + item.tail).metadata
    return b'{"kind":"%b","apiVersion":"meta.k8s.io/%b","metadata":%b}' % (
        PARTIAL.encode(),
        version.encode(),
        bytes(metadata),
    )


def include_object(query: Mapping[str, str]) -> IncludeObject:
    """Return the `includeObject` option of a Table request. Raises BadRequestError."""
    wanted = query.get("includeObject", "")
    policy = _INCLUDE.get(wanted)
    if policy is None:
        raise BadRequestError(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{wanted}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return policy


def _table_parts(
    codec: Codec,
    kind: Kind,
    served: Served,
    listed: Listed,
    form: Representation,
    query: Mapping[str, str],
    metadata: Mapping[str, str | int],
) -> tuple[bytes, Iterable[bytes]]:
    """Return the Table of a list up to its first row, and its rows."""
    table = render_table(
        kind.printer,
        [],
        now=0.0,
        include=include_object(query),
        list_metadata=metadata,
        version=form.version,
    )
    now, include = time.time(), include_object(query)
    as_served = partial(shown_object, codec, kind, served)
    rows = (
        msgspec.json.encode(
            render_row(
                kind.printer,
                decoded_object(kind, served, item),
                now=now,
                include=include,
                version=form.version,
                as_served=as_served,
            )
        )
        for item in listed.items
    )
    return msgspec.json.encode(table).removesuffix(b"]}"), rows


def decoded_object(kind: Kind, served: Served, item: Stored) -> Obj:
    """Return a stored object in its storage version, as printers read it."""
    return {"kind": kind.name, "apiVersion": served.api_version, **item.obj}


def shown_object(codec: Codec, kind: Kind, served: Served, obj: Obj) -> Obj:
    """Return a decoded object as its version shows it."""
    if served.from_storage is None:
        return obj
    shown = codec.from_storage(served, obj)
    return {**shown, "kind": kind.name, "apiVersion": served.api_version}
