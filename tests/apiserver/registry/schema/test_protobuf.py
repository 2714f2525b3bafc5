"""Protobuf messages byte by byte: what each wire type is read as, and what is refused."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from msgspec.structs import replace

from moorage.api import bounds
from moorage.apiserver.registry.schema import Field, Type, load_schema
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.schema.protobuf import (
    MAGIC,
    Envelope,
    ProtobufDecoder,
    open_envelope,
)

SCHEMA = load_schema()
DECODER = ProtobufDecoder(SCHEMA)
POD = "io.k8s.api.core.v1.Pod"


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value & (2**64 - 1))


def message(field: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(content)) + content


def fixed(field: int, value: bytes) -> bytes:
    return varint(field << 3 | (1 if len(value) == 8 else 5)) + value


def decoded(fields: tuple[Field, ...], raw: bytes) -> dict[str, Any]:
    """Decode a message of a type with these fields."""
    SCHEMA.add([Type(name="T", fields=fields)])
    return ProtobufDecoder(SCHEMA).decode("T", raw)


def read(field: Field, *values: Any) -> dict[str, Any]:
    """Decode a message that has values of one field, of number 1: numbers or bytes."""
    raw = b"".join(
        number(1, value) if isinstance(value, int) else message(1, value) for value in values
    )
    return decoded((replace(field, number=1),), raw)


def pointer(kind: Any) -> Field:
    return Field(name="f", kind=kind, is_pointer=True)


def test_an_envelope_says_what_is_in_it() -> None:
    meta = message(1, message(1, b"apps/v1"), message(2, b"Deployment"))
    assert open_envelope(MAGIC + meta + message(2, b"raw")) == Envelope(
        "apps/v1", "Deployment", b"raw"
    )
    assert open_envelope(MAGIC) == Envelope("", "", b"")
    assert open_envelope(MAGIC + message(1)) == Envelope("", "", b"")
    # What is of another wire type is not what is meant.
    assert open_envelope(MAGIC + number(1, 5) + number(2, 5)) == Envelope("", "", b"")


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        ("string", "é".encode(), "é"),
        ("bytes", b"hi", "aGk="),
        ("bool", 1, True),
        ("bool", 0, False),
        ("int32", 7, 7),
        ("int64", 2**64 - 1, -1),
        ("int64", 2**63, -(2**63)),
        ("int64", 2**63 - 1, 2**63 - 1),
        ("double", struct.pack("<d", 1.5), 1.5),
        ("quantity", message(1, b"500m"), "500m"),
        ("quantity", b"", "0"),
        ("intOrString", number(1, 0) + number(2, 80), 80),
        ("intOrString", number(2, 80) + message(3, b"x"), 80),
        ("intOrString", number(1, 1) + message(3, b"http"), "http"),
        ("intOrString", number(1, 1), ""),
        ("intOrString", b"", 0),
        ("any", message(1, b'{"a":[1]}'), {"a": [1]}),
        ("any", b"", None),
        ("strings", message(1, b"a") + message(1, b"b"), ["a", "b"]),
        ("strings", b"", []),
        ("time", number(1, 60), "1970-01-01T00:01:00Z"),
        ("time", number(1, -60), "1969-12-31T23:59:00Z"),
        ("time", number(1, 60) + number(2, 999_999_999), "1970-01-01T00:01:00Z"),
        ("microTime", number(1, 60) + number(2, 1_999), "1970-01-01T00:01:00.000001Z"),
        ("time", b"", None),
        ("microTime", b"", None),
        ("time", number(1, -62135596800), None),
        ("microTime", number(1, -62135596801), None),
        ("time", number(1, -62135596799), "0001-01-01T00:00:01Z"),
    ],
)
def test_values(kind: str, raw: Any, expected: Any) -> None:
    result = read(pointer(kind), raw)
    assert result == {"f": expected}
    assert type(result["f"]) is type(expected)


@pytest.mark.parametrize(
    ("kind", "raw", "why"),
    [
        ("string", 5, "wrong wireType for a message or string"),
        ("string", b"\xff", "string field contains invalid UTF-8"),
        ("bytes", 5, "wrong wireType for a message or string"),
        ("int32", b"", "wrong wireType for a number"),
        ("bool", b"", "wrong wireType for a number"),
        ("double", b"1234567", "wrong wireType for a double"),
        ("double", 5, "wrong wireType"),
        ("time", number(1, 2**62), "out of range"),
        ("time", message(1, b"x"), "wrong wireType for a number"),
        ("any", message(1, b"{"), "json parse error"),
        ("strings", number(1, 5), "wrong wireType"),
    ],
)
def test_values_that_are_refused(kind: str, raw: Any, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(pointer(kind), raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", {}),
        (number(1, 300) + message(2, b"ab"), {"1": 300, "2": "YWI="}),
        (fixed(3, b"12345678") + fixed(4, b"1234"), {"3": "MTIzNDU2Nzg=", "4": "MTIzNA=="}),
        (number(2000, 1), {"2000": 1}),
        (varint(8) + b"\xff" * 9 + b"\x01", {"1": -1}),
    ],
)
def test_fields_of_a_message(raw: bytes, expected: dict[str, Any]) -> None:
    kinds: dict[int, Any] = {1: "int64", 2: "bytes", 3: "bytes", 4: "bytes", 2000: "int64"}
    fields = (Field(name=str(field), kind=kind, number=field) for field, kind in kinds.items())
    assert decoded(tuple(fields), raw) == expected


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x08", "unexpected EOF"),
        (b"\x08\x80", "unexpected EOF"),
        (b"\x0a\x02a", "unexpected EOF"),
        (b"\x09" + b"1" * 7, "unexpected EOF"),
        (b"\x0d" + b"1" * 3, "unexpected EOF"),
        (b"\x0b", "illegal wireType 3"),
        (b"\x0e", "illegal wireType 6"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "integer overflow"),
        (number(1, 0) * (bounds.MAX_VALUES + 1), "more than 150000 values"),
    ],
)
def test_messages_that_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decoded((), raw)


def test_numbers_may_be_packed_and_maps_may_lack_a_value() -> None:
    numbers = Field(name="n", kind="int64", container="list")
    packed = varint(1) + varint(300) + varint(2**64 - 1)
    assert read(numbers, packed, 7, b"") == {"n": [1, 300, -1, 7]}
    with pytest.raises(DecodeError, match="more than 150000 values"):
        read(numbers, b"\0" * (bounds.MAX_VALUES + 1))
    assert len(read(numbers, b"\0" * bounds.MAX_VALUES)["n"]) == bounds.MAX_VALUES
    empties: tuple[tuple[Any, Any], ...] = (
        ("int32", 0), ("int64", 0), ("bool", False), ("string", ""),
    )  # fmt: skip
    for kind, empty in empties:
        field = Field(name="f", kind=kind, container="map")
        assert read(field, message(1, b"k")) == {"f": {"k": empty}}
    assert read(Field(name="f", kind="string", container="map"), b"") == {"f": {"": ""}}


@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        (Field(name="f", kind="int32"), 0, {}),
        (Field(name="f", kind="int32"), 3, {"f": 3}),
        (Field(name="f", kind="int32", is_pointer=True), 0, {"f": 0}),
        (Field(name="f", kind="string"), b"", {}),
        (Field(name="f", kind="bool", is_pointer=True), 0, {"f": False}),
        (Field(name="f", kind="object", type=POD), b"", {"f": {}}),
        (Field(name="f", kind="intOrString"), number(1, 1), {"f": ""}),
        (Field(name="f", kind="intOrString"), b"", {}),
    ],
)
def test_significant_zero_is_kept(field: Field, value: Any, kept: Any) -> None:
    assert read(field, value) == kept


def test_unknown_fields_are_skipped_and_known_ones_read() -> None:
    (meta,) = [field for field in SCHEMA[POD].fields if field.name == "metadata"]
    assert meta.number is not None
    raw = number(900, 1) + message(meta.number, message(1, b"a")) + message(901, b"x")
    assert DECODER.decode(POD, raw) == {"metadata": {"name": "a"}}


def test_messages_are_nested_so_deep_at_most() -> None:
    raw = b""
    for _ in range(64):
        raw = message(1, raw)
    inner = (Field(name="f", kind="object", type="T", number=1),)
    assert decoded(inner, raw)
    with pytest.raises(DecodeError, match="nested too deeply"):
        decoded(inner, message(1, raw))


def test_an_object_of_too_many_values_is_refused() -> None:
    (spec,) = [field for field in SCHEMA[POD].fields if field.name == "spec"]
    (selector,) = [f for f in SCHEMA[spec.type].fields if f.name == "nodeSelector"]
    assert spec.number is not None
    assert selector.number is not None

    def pod(count: int) -> bytes:
        entries = (message(selector.number or 0, message(1, b"%06d" % key)) for key in range(count))
        return message(spec.number or 0, *entries)

    # The object, its specification and the selector are values too.
    most = bounds.MAX_VALUES - 3
    assert len(DECODER.decode(POD, pod(most))["spec"]["nodeSelector"]) == most
    with pytest.raises(DecodeError, match="proto: more than 150000 values"):
        DECODER.decode(POD, pod(most + 1))
