"""Protobuf encoding of the v2 document: the only form that clients without v3 request.

kubectl before 1.27 reads it for every `apply`, later ones for lists of objects. Only the messages
and fields that Kubernetes' documents use are supported. Source: the field numbers of gnostic's
`openapi.v2` package; media type `application/com.github.proto-openapi.spec.v2@v1.0+protobuf`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

Encode = Callable[[Any], bytes]


class Field(NamedTuple):
    """A field of a message: its number, its encoder, and whether it is repeated."""

    number: int
    encode: Encode
    is_repeated: bool = False


Fields = Mapping[str, Field]

_LENGTH_DELIMITED, _VARINT, _FIXED64 = 2, 0, 1


def encode_swagger(document: dict[str, Any]) -> bytes:
    """Encode a Swagger 2.0 document as the message `openapi.v2.Document`.

    Raises KeyError for an unknown key that is not an extension.
    """
    return _message(_DOCUMENT, document)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _delimited(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(payload)) + payload


def _text(value: str) -> bytes:
    return value.encode()


def _boolean(value: bool) -> bytes:
    return _varint(int(value))


def _integer(value: int) -> bytes:
    return _varint(int(value) & _MOST_64_BITS)


def _number(value: float) -> bytes:
    return struct.pack("<d", value)


_MOST_64_BITS = 2**64 - 1
_WIRE_TYPES: Mapping[Encode, int] = {_boolean: _VARINT, _integer: _VARINT, _number: _FIXED64}
"""Encoders whose values are not length-delimited."""


def _message(fields: Fields, value: Mapping[str, Any]) -> bytes:
    """Encode an object whose keys are fields; `x-…` keys are its extensions, field `x-`."""
    out = bytearray()
    for key, content in value.items():
        if key.startswith("x-"):
            out += _delimited(fields["x-"].number, _named(key, _any(content)))
            continue
        field = fields[key]
        if (wire_type := _WIRE_TYPES.get(field.encode)) is not None:
            out += _varint(field.number << 3 | wire_type) + field.encode(content)
            continue
        for item in content if field.is_repeated else (content,):
            out += _delimited(field.number, field.encode(item))
    return bytes(out)


def _named(name: str, payload: bytes) -> bytes:
    return _delimited(1, name.encode()) + _delimited(2, payload)


def _any(value: Any) -> bytes:
    """Encode an untyped value as YAML, of which JSON is a subset."""
    return _delimited(2, json.dumps(value).encode() + b"\n")


def _map_of(encode: Encode, number: int = 1) -> Encode:
    """Return an encoder of objects with free keys: (name, value) entries in a repeated field."""

    def encoded(value: Mapping[str, Any]) -> bytes:
        return b"".join(
            _delimited(number, _named(name, encode(content))) for name, content in value.items()
        )

    return encoded


def _schema(value: Mapping[str, Any]) -> bytes:
    return _message(_SCHEMA, value)


def _wrapped_schema(value: Mapping[str, Any]) -> bytes:
    return _delimited(1, _schema(value))


def _additional(value: Any) -> bytes:
    if isinstance(value, bool):
        return _varint(2 << 3 | _VARINT) + _boolean(value)
    return _wrapped_schema(value)


def _type(value: str | Iterable[str]) -> bytes:
    names = (value,) if isinstance(value, str) else value
    return b"".join(_delimited(1, name.encode()) for name in names)


_DOCS: Fields = {"description": Field(1, _text), "url": Field(2, _text)}


def _external_docs(value: Mapping[str, Any]) -> bytes:
    return _message(_DOCS, value)


_SCHEMA: dict[str, Field] = {
    "$ref": Field(1, _text),
    "format": Field(2, _text),
    "title": Field(3, _text),
    "description": Field(4, _text),
    "default": Field(5, _any),
    "multipleOf": Field(6, _number),
    "maximum": Field(7, _number),
    "exclusiveMaximum": Field(8, _boolean),
    "minimum": Field(9, _number),
    "exclusiveMinimum": Field(10, _boolean),
    "maxLength": Field(11, _integer),
    "minLength": Field(12, _integer),
    "pattern": Field(13, _text),
    "maxItems": Field(14, _integer),
    "minItems": Field(15, _integer),
    "uniqueItems": Field(16, _boolean),
    "maxProperties": Field(17, _integer),
    "minProperties": Field(18, _integer),
    "enum": Field(20, _any, is_repeated=True),
    "additionalProperties": Field(21, _additional),
    "type": Field(22, _type),
    "items": Field(23, _wrapped_schema),
    "allOf": Field(24, _schema, is_repeated=True),
    "properties": Field(25, _map_of(_schema)),
    "externalDocs": Field(29, _external_docs),
    "example": Field(30, _any),
    "required": Field(19, _text, is_repeated=True),
    "x-": Field(31, _any),
}
_PRIMITIVE: Fields = {"type": Field(1, _text), "format": Field(2, _text)}


def _primitive(value: Mapping[str, Any]) -> bytes:
    return _message(_PRIMITIVE, value)


_QUERY: Fields = {
    "required": Field(1, _boolean),
    "in": Field(2, _text),
    "description": Field(3, _text),
    "name": Field(4, _text),
    "type": Field(6, _text),
    "format": Field(7, _text),
    "items": Field(8, _primitive),
    "uniqueItems": Field(20, _boolean),
}
_PATH: Fields = {
    "required": Field(1, _boolean),
    "in": Field(2, _text),
    "description": Field(3, _text),
    "name": Field(4, _text),
    "type": Field(5, _text),
    "format": Field(6, _text),
    "items": Field(7, _primitive),
    "uniqueItems": Field(19, _boolean),
}
_BODY: Fields = {
    "description": Field(1, _text),
    "name": Field(2, _text),
    "in": Field(3, _text),
    "required": Field(4, _boolean),
    "schema": Field(5, _schema),
}


def _parameter(value: Mapping[str, Any]) -> bytes:
    """Encode a `ParametersItem`: body, query and path parameters are separate messages."""
    if value["in"] == "body":
        return _delimited(1, _delimited(1, _message(_BODY, value)))
    number, fields = (3, _QUERY) if value["in"] == "query" else (4, _PATH)
    return _delimited(1, _delimited(2, _delimited(number, _message(fields, value))))


_RESPONSE: Fields = {"description": Field(1, _text), "schema": Field(2, _wrapped_schema)}


def _response(value: Mapping[str, Any]) -> bytes:
    return _delimited(1, _message(_RESPONSE, value))


_OPERATION: Fields = {
    "tags": Field(1, _text, is_repeated=True),
    "summary": Field(2, _text),
    "description": Field(3, _text),
    "operationId": Field(5, _text),
    "produces": Field(6, _text, is_repeated=True),
    "consumes": Field(7, _text, is_repeated=True),
    "parameters": Field(8, _parameter, is_repeated=True),
    "responses": Field(9, _map_of(_response)),
    "schemes": Field(10, _text, is_repeated=True),
    "deprecated": Field(11, _boolean),
    "x-": Field(13, _any),
}


def _operation(value: Mapping[str, Any]) -> bytes:
    return _message(_OPERATION, value)


_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}
_PATH_ITEM: Fields = {
    **{name: Field(number, _operation) for name, number in _METHODS.items()},
    "parameters": Field(9, _parameter, is_repeated=True),
    "x-": Field(10, _any),
}


def _path_item(value: Mapping[str, Any]) -> bytes:
    return _message(_PATH_ITEM, value)


_INFO: Fields = {"title": Field(1, _text), "version": Field(2, _text)}


def _info(value: Mapping[str, Any]) -> bytes:
    return _message(_INFO, value)


_DOCUMENT: Fields = {
    "swagger": Field(1, _text),
    "info": Field(2, _info),
    "paths": Field(8, _map_of(_path_item, number=2)),
    "definitions": Field(9, _map_of(_schema)),
}
