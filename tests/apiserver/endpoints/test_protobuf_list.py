"""Lists in protobuf: one message, also when it does not fit into memory twice."""

from __future__ import annotations

import pytest

from moorage.apiserver.endpoints.representations import protobuf_list
from moorage.apiserver.registry.schema.protobuf import fields_of, open_envelope
from moorage.apiserver.registry.stored import Stored


@pytest.mark.parametrize("kept", [0, 1000, 10**9])
@pytest.mark.parametrize("sizes", [[], [0], [127, 128, 16_383, 16_384, 2_097_152], [50] * 3000])
async def test_a_list_is_one_message(sizes: list[int], kept: int) -> None:
    items = [Stored(f"t/{size}", 1, b"x" * size, {}, ()) for size in sizes]
    body = await protobuf_list(
        items, lambda item: item.tail, api_version="v1", kind="PodList", list_meta=b"\x12\x017",
        held_bytes=sum(sizes), kept_bytes=kept, turn_s=0.0,
    )  # fmt: skip
    pieces = list(body.pieces())
    envelope = open_envelope(b"".join(pieces))
    assert (envelope.api_version, envelope.kind) == ("v1", "PodList")
    assert len(envelope.raw) == body.length
    fields = list(fields_of(envelope.raw))
    assert fields[0] == (1, b"\x12\x017")
    assert [(number, len(value)) for number, value in fields[1:] if isinstance(value, bytes)] == [
        (2, size) for size in sizes
    ]
    assert max(map(len, pieces)) <= 2 * 64 * 1024 + max([0, *sizes])
    held = sum(len(message) for message in body.encoded if message is not None)
    assert held <= kept
