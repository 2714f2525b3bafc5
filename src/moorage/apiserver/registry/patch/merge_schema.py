"""Merge schema: how the fields of a type are owned (atomic, by key, or field by field).

Created once per type from the schema's list and map types. Lists without a list type are atomic.
Source: API docs "Server-Side Apply", merge strategy markers.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import msgspec

from moorage.apiserver.registry.schema import Field, Schema, Type

_encode = msgspec.json.Encoder(order="sorted").encode


class Shape(IntEnum):
    """Granularity of a field's ownership."""

    LEAF = 0
    OBJECT = 1
    MAP = 2
    KEYED_LIST = 3
    SET = 4


class Part(msgspec.Struct, frozen=True):
    """One field: its path element, shape, and for objects the type of its contents.

    `keys` are the keys of a keyed list with their defaults. `is_always`: the field is present even
    in an empty object, so no manager creates it.
    """

    element: str
    shape: Shape
    inner: str = ""
    keys: tuple[tuple[str, Any], ...] = ()
    is_always: bool = False


class _OpenParts(dict[str, Part]):
    """The parts of an object that may have other fields: each of these is owned as a whole."""

    def get(self, name: str, default: Any = None) -> Part:
        del default
        part = super().get(name)
        return part if part is not None else Part(f"f:{name}", Shape.LEAF)


class MergeSchema:
    """The parts of every type of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._parts: dict[str, dict[str, Part]] = {}

    def parts(self, type_name: str) -> dict[str, Part]:
        """Return the parts of a type by field name."""
        parts = self._parts.get(type_name)
        if parts is None:
            type_ = self._schema[type_name]
            kind = _OpenParts if type_.is_open else dict
            parts = self._parts[type_name] = kind(
                (field.name, self._part(field)) for field in type_.fields
            )
        return parts

    def forget(self, type_names: Iterable[str]) -> None:
        """Forget types that are removed from the schema or replaced in it."""
        for name in type_names:
            self._parts.pop(name, None)

    def _part(self, field: Field) -> Part:
        element = f"f:{field.name}"
        inner = field.type if field.kind == "object" else ""
        shape, keys = self._shape(field)
        return Part(element, shape, inner, keys, field.is_always)

    def _shape(self, field: Field) -> tuple[Shape, tuple[tuple[str, Any], ...]]:
        match field.container:
            case "list" if field.list_type == "map":
                return Shape.KEYED_LIST, self._keys(field)
            case "list" if field.list_type == "set":
                return Shape.SET, ()
            case "list":
                return Shape.LEAF, ()
            case "map":
                return (Shape.LEAF if field.map_type == "atomic" else Shape.MAP), ()
        if field.kind != "object" or field.map_type == "atomic" or self._type(field).is_atomic:
            return Shape.LEAF, ()
        return Shape.OBJECT, ()

    def _keys(self, field: Field) -> tuple[tuple[str, Any], ...]:
        by_name = self._type(field).by_name
        return tuple((key, by_name[key].key_default or None) for key in field.list_keys)

    def _type(self, field: Field) -> Type:
        return self._schema[field.type]


def item_element(part: Part, item: dict[str, Any]) -> str:
    """Return the path element of a keyed list's item: `k:{"name":"c"}`."""
    keys = part.keys
    if len(keys) == 1:
        key, default = keys[0]
        return f'k:{{"{key}":{_encode(item.get(key, default)).decode()}}}'
    values = {key: item.get(key, default) for key, default in keys}
    present = {key: value for key, value in values.items() if value is not None}
    return "k:" + _encode(present).decode()


def value_element(value: Any) -> str:
    """Return the path element of a set's member: `v:"x"`."""
    return "v:" + _encode(value).decode()
