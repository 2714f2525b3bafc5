"""Writes objects in Kubernetes protobuf, so that reading can be tested without another library.

The inverse of `moorage.apiserver.registry.schema.protobuf`, for tests only: whatever a typed client
may send, with non-pointer scalars written even when zero, as generated Go code does.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from moorage.api.clock import parse_time
from moorage.apiserver.registry.schema import Field, Schema, Type
from moorage.apiserver.registry.schema.protobuf import MAGIC


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    meta = _bytes(1, api_version.encode()) + _bytes(2, kind.encode())
    return MAGIC + _bytes(1, meta) + _bytes(2, raw) + _bytes(3, b"") + _bytes(4, b"")


def encode(schema: Schema, type_name: str, obj: dict[str, Any]) -> bytes:
    return _message(schema, schema[type_name], obj)


def _message(schema: Schema, type_: Type, obj: dict[str, Any]) -> bytes:
    out = b""
    for inlined in type_.inlined:
        inner = schema[inlined.type]
        part = {key: value for key, value in obj.items() if key in inner.by_name}
        out += _bytes(inlined.number, _message(schema, inner, part))
    for field in type_.fields:
        if field.number is None:
            continue
        value = obj.get(field.name)
        if value is None:
            if not field.container and not field.is_pointer and field.kind in _ZEROS:
                out += _one(schema, field, _ZEROS[field.kind])
        elif field.container == "list":
            out += b"".join(_one(schema, field, item) for item in value)
        elif field.container == "map":
            out += b"".join(_bytes(field.number, e) for e in _entries(schema, field, value))
        else:
            out += _one(schema, field, value)
    return out


_ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0}


def _entries(schema: Schema, field: Field, value: dict[str, Any]) -> Iterator[bytes]:
    plain = Field(name=field.name, kind=field.kind, type=field.type, number=2)
    for key, item in value.items():
        yield _bytes(1, key.encode()) + _one(schema, plain, item)


def _one(schema: Schema, field: Field, value: Any) -> bytes:
    assert field.number is not None
    number = field.number
    match field.kind:
        case "object":
            return _bytes(number, _message(schema, schema[field.type], value))
        case "string":
            return _bytes(number, value.encode())
        case "bytes":
            return _bytes(number, base64.b64decode(value))
        case "bool" | "int32" | "int64":
            return _tag(number, 0) + _varint(int(value))
        case "double":
            return _tag(number, 1) + struct.pack("<d", value)
        case "quantity":
            return _bytes(number, _bytes(1, str(value).encode()))
        case "intOrString":
            if isinstance(value, str):
                return _bytes(number, _number(1, 1) + _bytes(3, value.encode()))
            return _bytes(number, _number(1, 0) + _number(2, value) + _bytes(3, b""))
        case "time" | "microTime":
            moment = parse_time(value)
            parts = _number(1, int(moment.timestamp())) + _number(2, moment.microsecond * 1000)
            return _bytes(number, parts)
        case "any":
            return _bytes(number, _bytes(1, msgspec.json.encode(value)))
        case "strings":
            return _bytes(number, b"".join(_bytes(1, item.encode()) for item in value))
        case _:
            raise NotImplementedError(field.kind)


def _number(number: int, value: int) -> bytes:
    return _tag(number, 0) + _varint(value)


def _bytes(number: int, value: bytes) -> bytes:
    return _tag(number, 2) + _varint(len(value)) + value


def _tag(number: int, wire_type: int) -> bytes:
    return _varint(number << 3 | wire_type)


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
