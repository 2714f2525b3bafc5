"""CEL values of JSON: what the type and format of a schema make of it.

`number` is a double even where JSON shows an integer; `byte`, `date`, `date-time` and `duration`
are bytes, timestamps and durations. Fields that the schema does not specify are not accessible.
Names of fields that are no CEL identifiers are escaped; reserved words are names of fields too, as
they are. Source: API docs "Validation rules" (table of types, escaping); KEP-2876; apiserver
`cel/types.go` (`recognizeKeywordAsFieldName`).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from cel_expr_python import cel
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

Schema = Mapping[str, Any]
"""One JSONSchemaProps object that passed validation."""

Conversion = Callable[[Any], Any]

Type = cel.Type
CelType: TypeAlias = Any
"""One of these types; the library has no type hints."""

_RESERVED = frozenset(
    ("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
     "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while")
)  # fmt: skip
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPABLE = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_ESCAPED = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SPECIAL = re.compile("|".join(map(re.escape, _ESCAPED)))

_STRING: Schema = {"type": "string"}
_NAMES: Schema = {"type": "object", "properties": {"name": _STRING, "generateName": _STRING}}
_ENVELOPE: Schema = {"apiVersion": _STRING, "kind": _STRING, "metadata": _NAMES}
"""What rules see of a resource beside its own fields."""

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ns|us|µs|ms|s|m|h|d|w)")
_NANOSECONDS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9,
    "h": 3600 * 10**9, "d": 86400 * 10**9, "w": 7 * 86400 * 10**9,
}  # fmt: skip


def escape(name: str) -> str | None:
    """Return the identifier of a field; None where it has none and is not accessible."""
    if name in _RESERVED:
        return f"__{name}__"
    if _IDENTIFIER.fullmatch(name) and "__" not in name:
        return name
    if not _ESCAPABLE.fullmatch(name):
        return None
    return _SPECIAL.sub(lambda match: _ESCAPED[match[0]], name)


def names_of(field: str) -> tuple[str, ...]:
    """Return the names by which expressions select a field: `namespace` and `__namespace__`."""
    escaped = escape(field)
    if escaped is None:
        return ()
    return (field, escaped) if field in _RESERVED else (escaped,)


def as_resource(schema: Schema) -> Schema:
    """Return the schema of a resource with the fields that every resource has."""
    return {**schema, "properties": {**schema.get("properties", {}), **_ENVELOPE}}


def is_known(schema: Schema) -> bool:
    """Return whether values of a schema are accessible: those of an unknown type are not."""
    return bool(schema.get("type") or schema.get("x-kubernetes-int-or-string"))


def type_of(schema: Schema) -> CelType:
    """Return the type of a value, as far as it can be known before evaluation."""
    if schema.get("nullable") or schema.get("x-kubernetes-int-or-string"):
        return Type.DYN
    match schema.get("type"):
        case "boolean":
            return Type.BOOL
        case "integer":
            return Type.INT
        case "number":
            return Type.DOUBLE
        case "string":
            return _TEXT_TYPES.get(schema.get("format", ""), Type.STRING)
        case "array":
            return Type.List(type_of(schema.get("items") or {}))
        case "object":
            values = _map_values(schema)
            return Type.Map(Type.STRING, Type.DYN if values is None else type_of(values))
    return Type.DYN


_TEXT_TYPES = {
    "byte": Type.BYTES,
    "date": Type.TIMESTAMP,
    "date-time": Type.TIMESTAMP,
    "duration": Type.DURATION,
}


def conversion_of(schema: Schema) -> Conversion:
    """Return the function from JSON to CEL."""
    if schema.get("x-kubernetes-int-or-string"):
        return _unchanged
    match schema.get("type"):
        case "number":
            return _number
        case "string":
            return _TEXT_CONVERSIONS.get(schema.get("format", ""), _unchanged)
        case "array":
            return _list_conversion(schema)
        case "object":
            return _object_conversion(schema)
    return _unchanged


def _map_values(schema: Schema) -> Schema | None:
    values = schema.get("additionalProperties")
    if schema.get("properties") or not isinstance(values, dict):
        return None
    return values


def _list_conversion(schema: Schema) -> Conversion:
    inner = conversion_of(schema.get("items") or {})
    if inner is _unchanged:
        return _unchanged
    return lambda value: [inner(item) for item in value] if isinstance(value, list) else value


def _object_conversion(schema: Schema) -> Conversion:
    if schema.get("x-kubernetes-embedded-resource"):
        schema = as_resource(schema)
    values = _map_values(schema)
    if values is None:
        return _fields_conversion(schema.get("properties") or {})
    inner = conversion_of(values)
    if inner is _unchanged:
        return _unchanged
    return lambda value: (
        {key: inner(item) for key, item in value.items()} if isinstance(value, dict) else value
    )


def _fields_conversion(properties: Mapping[str, Schema]) -> Conversion:
    fields = {
        name: (names, conversion_of(schema))
        for name, schema in properties.items()
        if is_known(schema) and (names := names_of(name))
    }

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        converted = {}
        for name, item in value.items():
            field = fields.get(name)
            if field is not None:
                names, conversion = field
                new = conversion(item)
                for one in names:
                    converted[one] = new
        return converted

    return convert


def _unchanged(value: Any) -> Any:
    return value


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except binascii.Error:
        return value


def _timestamp(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    timestamp = Timestamp()
    try:
        timestamp.FromJsonString(value if "T" in value.upper() else f"{value}T00:00:00Z")
    except ValueError:
        return value
    return timestamp


def _duration(value: Any) -> Any:
    """Convert `1h30m`, as Go writes durations, with days and weeks as OpenAPI formats have them."""
    if not isinstance(value, str):
        return value
    digits = value.lstrip("+-").replace(" ", "")
    parts = _DURATION.findall(digits)
    if not parts or "".join(map("".join, parts)) != digits:
        return value
    nanoseconds = round(sum(float(amount) * _NANOSECONDS[unit] for amount, unit in parts))
    duration = Duration()
    duration.FromNanoseconds(-nanoseconds if value.startswith("-") else nanoseconds)
    return duration


_TEXT_CONVERSIONS: dict[str, Conversion] = {
    "byte": _bytes,
    "date": _timestamp,
    "date-time": _timestamp,
    "duration": _duration,
}
