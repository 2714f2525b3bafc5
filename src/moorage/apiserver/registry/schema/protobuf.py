"""Protobuf decoder: Kubernetes protobuf to the same dict as the object's JSON.

Typed clients (kubectl since 1.32, Helm, controllers) send bodies of built-in kinds in this form
and never fall back. `protobuf_encoder.py` is the inverse. The envelope is `k8s\\x00` and a
`runtime.Unknown` message; scalars that are not pointers are written even when zero, so zero means
absent for them. Source: apimachinery `runtime/serializer/protobuf`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from moorage.api import bounds
from moorage.api.clock import format_micro_time, format_time
from moorage.apiserver.registry.schema.decode import parse_json
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.schema.types import Field, Schema, Type

MAGIC = b"k8s\x00"
SCHEMA_OR = {"items": "array", "dependencies": "strings"}
"""Fields of a JSON schema that are JSONSchemaPropsOrArray or OrStringArray; others are OrBool."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_DEPTH = 64

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = int | bytes


class Envelope(msgspec.Struct, frozen=True):
    """The outer message: kind, apiVersion and the bytes of the object."""

    api_version: str
    kind: str
    raw: bytes


def open_envelope(body: bytes) -> Envelope:
    """Parse the envelope of a body. Raises DecodeError when it is not in this form."""
    if not body.startswith(MAGIC):
        raise DecodeError(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    api_version = kind = ""
    raw = b""
    for number, value in fields_of(body[len(MAGIC) :]):
        if number == 1 and isinstance(value, bytes):
            meta = dict(fields_of(value))
            api_version, kind = _text(meta.get(1, b"")), _text(meta.get(2, b""))
        elif number == 2 and isinstance(value, bytes):
            raw = value
    return Envelope(api_version, kind, raw)


class ProtobufDecoder:
    """Decodes messages of any type of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def decode(self, type_name: str, raw: bytes) -> dict[str, Any]:
        """Decode an object to the dict that its JSON gives.

        Raises DecodeError for malformed bytes and beyond `moorage.api.bounds`.
        """
        obj = self._message(self._schema[type_name], raw, 0)
        # A value takes at least two bytes.
        if len(raw) > 2 * bounds.MAX_VALUES and (excess := bounds.exceeded(obj)):
            raise DecodeError(f"proto: {excess}")
        return obj

    def _message(self, type_: Type, raw: bytes, depth: int) -> dict[str, Any]:
        if depth > _MAX_DEPTH:
            raise DecodeError("protobuf: message nested too deeply")
        result: dict[str, Any] = {}
        inlined = {message.number: message.type for message in type_.inlined}
        for number, value in fields_of(raw):
            field = type_.by_number.get(number)
            if field is not None:
                self._add(result, field, value, depth)
            elif number in inlined:
                inner = self._message(self._schema[inlined[number]], _bytes(value), depth + 1)
                result.update(inner)
        return result

    def _add(self, result: dict[str, Any], field: Field, value: Value, depth: int) -> None:
        if field.container == "list":
            items = result.setdefault(field.name, [])
            if field.kind in ("int32", "int64") and isinstance(value, bytes):
                items += [_signed(number) for number in _packed(value)]
            else:
                items.append(self._value(field, value, depth))
        elif field.container == "map":
            entry = dict(fields_of(_bytes(value)))
            key = _text(entry.get(1, b""))
            empty: Value = 0 if field.kind in ("int32", "int64", "bool") else b""
            result.setdefault(field.name, {})[key] = self._value(field, entry.get(2, empty), depth)
        else:
            decoded = self._value(field, value, depth)
            # An explicit zero is significant only where it differs from absent.
            if (
                decoded
                or field.is_pointer
                or field.kind == "object"
                or _is_wrong_port(decoded, field)
            ):
                result[field.name] = decoded

    def _value(self, field: Field, value: Value, depth: int) -> Any:
        if field.kind == "object":
            return self._message(self._schema[field.type], _bytes(value), depth + 1)
        if field.kind == "any" and field.type:
            return self._schema_or(field, _bytes(value), depth + 1)
        return _READERS[field.kind](value)

    def _schema_or(self, field: Field, raw: bytes, depth: int) -> Any:
        """Decode JSONSchemaPropsOrArray, OrBool or OrStringArray, as the field has it."""
        form = SCHEMA_OR.get(field.name, "bool")
        schema_number = 2 if form == "bool" else 1
        type_ = self._schema[field.type]
        items: list[Any] = []
        allows = False
        for number, value in fields_of(raw):
            if number == schema_number:
                return self._message(type_, _bytes(value), depth)
            if form == "bool":
                allows = bool(_number(value))
            elif form == "array":
                items.append(self._message(type_, _bytes(value), depth))
            else:
                items.append(_text(value))
        return allows if form == "bool" else items


def _is_wrong_port(value: Any, field: Field) -> bool:
    """Return whether a value is an empty int-or-string, which no default may replace."""
    return field.kind == "intOrString" and value == ""


def fields_of(raw: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the (number, value) pairs of one message."""
    position, end, count = 0, len(raw), 0
    while position < end:
        count += 1
        if count > bounds.MAX_VALUES:
            raise DecodeError(f"proto: {bounds.TOO_MANY}")
        tag, position = _varint(raw, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(raw, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = _varint(raw, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise DecodeError(f"proto: illegal wireType {wire_type}")
        if position + size > end:
            raise DecodeError("unexpected EOF")
        yield number, raw[position : position + size]
        position += size


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(raw):
            raise DecodeError("unexpected EOF")
        byte = raw[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise DecodeError("proto: integer overflow")


def _packed(raw: bytes) -> Iterator[int]:
    if len(raw) > bounds.MAX_VALUES:
        raise DecodeError(f"proto: {bounds.TOO_MANY}")
    position = 0
    while position < len(raw):
        number, position = _varint(raw, position)
        yield number


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise DecodeError("proto: wrong wireType for a message or string")
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise DecodeError("proto: wrong wireType for a number")
    return value


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _text(value: Value) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError as error:
        raise DecodeError("proto: string field contains invalid UTF-8") from error


def _integer(value: Value) -> int:
    return _signed(_number(value))


def _double(value: Value) -> float:
    raw = _bytes(value)
    if len(raw) != 8:
        raise DecodeError("proto: wrong wireType for a double")
    return float(struct.unpack("<d", raw)[0])


def _moment(value: Value) -> datetime | None:
    parts = {number: _signed(_number(part)) for number, part in fields_of(_bytes(value))}
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    # Go's zero time: the field is absent.
    if seconds <= -62135596800:
        return None
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as error:
        raise DecodeError(f"proto: time {seconds} s is out of range") from error


def _time(value: Value) -> str | None:
    moment = _moment(value)
    return format_time(moment) if moment and moment != _EPOCH else None


def _micro_time(value: Value) -> str | None:
    moment = _moment(value)
    return format_micro_time(moment) if moment and moment != _EPOCH else None


def _quantity(value: Value) -> str:
    return _text(dict(fields_of(_bytes(value))).get(1, b"0"))


def _int_or_string(value: Value) -> int | str:
    parts = dict(fields_of(_bytes(value)))
    if parts.get(1, 0) == 1:
        return _text(parts.get(3, b""))
    return _integer(parts.get(2, 0))


def _free_json(value: Value) -> Any:
    raw = _bytes(dict(fields_of(_bytes(value))).get(1, b""))
    return parse_json(raw) if raw else None


_READERS: dict[str, Callable[[Value], Any]] = {
    "string": _text,
    "bytes": lambda value: base64.b64encode(_bytes(value)).decode(),
    "bool": lambda value: bool(_number(value)),
    "int32": _integer,
    "int64": _integer,
    "double": _double,
    "time": _time,
    "microTime": _micro_time,
    "quantity": _quantity,
    "intOrString": _int_or_string,
    "any": _free_json,
    "strings": lambda value: [_text(item) for _, item in fields_of(_bytes(value))],
}
