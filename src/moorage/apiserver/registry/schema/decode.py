"""JSON decoder: JSON bytes to a dict that fits its type.

Hot path: a valid body is checked by a compiled decoder (C speed) and decoded once more into dicts;
only a body with an unknown field, a repeated key or a wrong type is walked in Python, to report
the exact error and field. Budget 25 µs for a 1.5 KB pod (bench/hotpaths.py).
Source: field validation (KEP-2885); error texts are those of Go's decoder.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from moorage.api import bounds
from moorage.apiserver.registry.schema.errors import DecodeError, StrictErrors
from moorage.apiserver.registry.schema.types import Field, Schema, Type

_SCALARS: dict[str, Any] = {
    "string": str,
    "bytes": str,
    "time": str,
    "microTime": str,
    "bool": bool,
    "double": float,
    "int32": Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
    "int64": Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)],
    "quantity": str | int | float,
    "intOrString": str | int,
    "any": Any,
    "strings": list[str],
}

_SCHEMA_LIST = "items"
"""Field of a schema that may be a list of schemas."""


class JsonDecoder:
    """Decodes bodies of any type of one schema; per-type decoders are created on first use."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._structs: dict[str, type[msgspec.Struct]] = {}
        self._checkers: dict[str, Callable[[bytes], Any]] = {}
        self._lock = threading.Lock()
        self._open: list[str] = []
        self._recursive: set[str] = set()

    def decode(self, type_name: str, body: bytes) -> tuple[dict[str, Any], StrictErrors]:
        """Decode an object. Returns it without unknown fields, and the strict errors.

        Raises DecodeError for malformed JSON or a value of the wrong type.
        """
        check = self._checkers.get(type_name)
        if check is None:
            with self._lock:
                struct = self._struct(type_name)
            check = self._checkers[type_name] = msgspec.json.Decoder(struct).decode
        # A compiled decoder of a type that contains itself checks its first level only.
        fits = type_name not in self._recursive
        try:
            check(body)
        except (msgspec.DecodeError, ValueError, RecursionError):
            fits = False
        obj = parse_json(body)
        # Equal numbers of `":` before and after mean that no repeated key was dropped.
        if not fits or body.count(b'":') != msgspec.json.encode(obj).count(b'":'):
            return self._walk(type_name, body)
        return obj, StrictErrors()

    def check(self, type_name: str, obj: dict[str, Any]) -> tuple[dict[str, Any], StrictErrors]:
        """Check an already decoded object as `decode` does (the result of a patch, YAML)."""
        return _Walker(self._schema).walk(type_name, obj)

    def _walk(self, type_name: str, body: bytes) -> tuple[dict[str, Any], StrictErrors]:
        return _Walker(self._schema).walk(type_name, parse_pairs(body))

    def _struct(self, type_name: str) -> type[msgspec.Struct]:
        known = self._structs.get(type_name)
        if known is not None:
            if type_name in self._recursive:
                self._recursive |= set(self._open)
            return known
        type_ = self._schema[type_name]
        self._open.append(type_name)
        members = [
            (
                f"f{index}",
                self._annotation(field) | None,
                msgspec.field(default=None, name=field.name),
            )
            for index, field in enumerate(type_.fields)
        ]
        struct = msgspec.defstruct(type_.go_name, members, forbid_unknown_fields=True, gc=False)
        self._open.pop()
        self._structs[type_name] = struct
        return struct

    def _annotation(self, field: Field) -> Any:
        if field.kind != "object":
            inner = _SCALARS[field.kind]
        elif field.type in self._open:
            self._recursive |= set(self._open)
            inner = dict[str, Any]
        else:
            inner = self._struct(field.type)
        match field.container:
            case "list":
                return list[inner]  # type: ignore[valid-type]
            case "map":
                return dict[str, inner]  # type: ignore[valid-type]
            case _:
                return inner


def parse_json(body: bytes) -> Any:
    """Parse JSON. Raises DecodeError for malformed JSON and beyond `moorage.api.bounds`."""
    try:
        document = msgspec.json.decode(body)
    except RecursionError as error:
        raise DecodeError(f"json parse error: {bounds.TOO_DEEP}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise DecodeError(f"json parse error: {error}") from error
    # Nearly all bodies have too few brackets to be deep and too few bytes for many values.
    if _may_exceed(body) and (excess := bounds.exceeded(document)):
        raise DecodeError(f"json parse error: {excess}")
    return document


def _may_exceed(body: bytes) -> bool:
    return (
        body.count(b"{") + body.count(b"[") > bounds.MAX_DEPTH
        or body.count(b",") > bounds.MAX_VALUES
    )


class Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys as written, repeated ones included."""

    __slots__ = ()


def parse_pairs(body: bytes) -> Any:
    """Parse JSON with objects as Pairs. `body` must have passed `parse_json`.

    Raises DecodeError when values replaced by a repeated key exceed the bounds.
    """
    try:
        document = json.loads(body, object_pairs_hook=Pairs)
    except RecursionError as error:
        raise DecodeError(f"json parse error: {bounds.TOO_DEEP}") from error
    except ValueError as error:
        raise DecodeError(f"json parse error: {error}") from error
    if _may_exceed(body) and (excess := bounds.exceeded(document, _values_of)):
        raise DecodeError(f"json parse error: {excess}")
    return document


def repeated_fields(body: bytes, document: Any) -> StrictErrors:
    """Return a strict error per repeated key of a JSON body that was parsed to `document`.

    Raises DecodeError when values replaced by a repeated key exceed the bounds.
    """
    errors = StrictErrors()
    if body.count(b'":') != msgspec.json.encode(document).count(b'":'):
        _add_repeated(parse_pairs(body), "", errors)
    return errors


def _add_repeated(node: Any, path: str, errors: StrictErrors) -> None:
    if isinstance(node, Pairs):
        seen: set[str] = set()
        for key, value in node:
            at = f"{path}.{key}" if path else key
            if key in seen:
                errors.append(f'duplicate field "{at}"')
            seen.add(key)
            _add_repeated(value, at, errors)
    elif isinstance(node, list):
        for index, item in enumerate(node):
            _add_repeated(item, f"{path}[{index}]", errors)


def _values_of(container: Any) -> Any:
    return [value for _, value in container] if isinstance(container, Pairs) else container


class _Walker:
    """Fits a parsed document to its type and collects the strict errors."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._found = StrictErrors()

    def walk(self, type_name: str, document: Any) -> tuple[dict[str, Any], StrictErrors]:
        type_ = self._schema[type_name]
        if not isinstance(document, dict | Pairs):
            raise DecodeError(
                f"json: cannot unmarshal {json_name(document)} into Go value of type "
                f"{_go_type(type_.name)}"
            )
        return self._object(type_, document, "", "", 0), self._found

    def _object(
        self, type_: Type, document: dict[str, Any] | Pairs, path: str, go_path: str, depth: int
    ) -> dict[str, Any]:
        if depth > bounds.MAX_DEPTH:
            raise DecodeError("json: exceeded max depth")
        result: dict[str, Any] = {}
        for key, value in _pairs(document):
            at = f"{path}.{key}" if path else key
            field = type_.by_name.get(key)
            if field is None:
                self._found.append(f'unknown field "{at}"')
                continue
            if key in result:
                self._found.append(f'duplicate field "{at}"')
            go_at = f"{go_path}.{key}" if go_path else key
            result[key] = self._field(type_, field, value, at, go_at, depth)
        return result

    def _field(
        self, owner: Type, field: Field, value: Any, path: str, go_path: str, depth: int
    ) -> Any:
        if value is None:
            return None
        match field.container:
            case "list":
                if not isinstance(value, list) or isinstance(value, Pairs):
                    raise _mismatch(owner, field, value, go_path)
                return [
                    self._value(owner, field, item, f"{path}[{index}]", go_path, depth)
                    for index, item in enumerate(value)
                ]
            case "map":
                if not isinstance(value, dict | Pairs):
                    raise _mismatch(owner, field, value, go_path)
                entries: dict[str, Any] = {}
                for key, item in _pairs(value):
                    at = f"{path}.{key}"
                    if key in entries:
                        self._found.append(f'duplicate field "{at}"')
                    entries[key] = self._value(owner, field, item, at, go_path, depth)
                return entries
            case _:
                return self._value(owner, field, value, path, go_path, depth)

    def _value(
        self, owner: Type, field: Field, value: Any, path: str, go_path: str, depth: int
    ) -> Any:
        if value is None:
            return None
        if field.kind == "object":
            if not isinstance(value, dict | Pairs):
                raise _mismatch(owner, field, value, go_path, is_item=True)
            return self._object(self._schema[field.type], value, path, go_path, depth + 1)
        if field.kind == "any":
            if field.type:
                return self._schema_or_other(owner, field, value, path, go_path, depth)
            return _plain(value)
        if not _ACCEPTS[field.kind](value):
            raise _mismatch(owner, field, value, go_path, is_item=True)
        return list(value) if field.kind == "strings" else value

    def _schema_or_other(
        self, owner: Type, field: Field, value: Any, path: str, go_path: str, depth: int
    ) -> Any:
        """Check a value that is a schema, or what the field has in its place."""
        if isinstance(value, dict | Pairs):
            return self._object(self._schema[field.type], value, path, go_path, depth + 1)
        has_schemas = field.name == _SCHEMA_LIST
        if isinstance(value, list) and has_schemas:
            if all(isinstance(item, dict | Pairs) for item in value):
                return [
                    self._object(
                        self._schema[field.type], item, f"{path}[{index}]", go_path, depth + 1
                    )
                    for index, item in enumerate(value)
                ]
        elif field.container == "map":
            if _ACCEPTS["strings"](value):
                return list(value)
        elif isinstance(value, bool) and not has_schemas:
            return value
        raise _mismatch(owner, field, value, go_path, is_item=True)


def _is_int(value: Any, bits: int) -> bool:
    return type(value) is int and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_ACCEPTS: dict[str, Callable[[Any], bool]] = {
    "string": _is_text,
    "bytes": _is_text,
    "time": _is_text,
    "microTime": _is_text,
    "bool": lambda value: isinstance(value, bool),
    "double": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "int32": lambda value: _is_int(value, 32),
    "int64": lambda value: _is_int(value, 64),
    "quantity": lambda value: isinstance(value, str | int | float) and not isinstance(value, bool),
    "intOrString": lambda value: isinstance(value, str) or _is_int(value, 32),
    "strings": lambda value: (
        isinstance(value, list)
        and not isinstance(value, Pairs)
        and all(isinstance(item, str) for item in value)
    ),
}


def _pairs(document: dict[str, Any] | Pairs) -> Any:
    return document if isinstance(document, Pairs) else document.items()


def _plain(value: Any) -> Any:
    """Return free JSON with Pairs replaced by dicts."""
    if isinstance(value, Pairs):
        return {key: _plain(item) for key, item in value}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _mismatch(
    owner: Type, field: Field, value: Any, go_path: str, *, is_item: bool = False
) -> DecodeError:
    shown = json_name(value)
    if isinstance(value, float) or (type(value) is int and field.kind in ("int32", "int64")):
        shown = f"number {value}"
    expected = _go_field_type(field, is_item=is_item)
    return DecodeError(
        f"json: cannot unmarshal {shown} into Go struct field {owner.go_name}.{go_path} "
        f"of type {expected}"
    )


_GO_KINDS = {
    "bytes": "[]uint8", "double": "float64", "time": "v1.Time", "microTime": "v1.MicroTime",
    "quantity": "resource.Quantity", "intOrString": "intstr.IntOrString", "strings": "[]string",
}  # fmt: skip


def _go_field_type(field: Field, *, is_item: bool) -> str:
    item = _go_type(field.type) if field.type else _GO_KINDS.get(field.kind, field.kind)
    if is_item:
        return item
    return f"[]{item}" if field.container == "list" else f"map[string]{item}"


def _go_type(full_name: str) -> str:
    """Return the Go type: `v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`."""
    return ".".join(full_name.rsplit(".", 2)[-2:])


def json_name(value: Any) -> str:
    """Return Go's name for the type of a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, dict | Pairs):
        return "object"
    return "array" if isinstance(value, list) else "null"
