"""Structure of a custom resource: what a structural schema says of fields, lists and maps.

Value validation (`maximum`, `pattern`, `anyOf`, …) is not part of it: see `rules`. Source: API docs
"Specifying a structural schema".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, Final

import msgspec

from moorage.apiserver.registry.schema.types import Field, Type

_OPEN = "x-kubernetes-preserve-unknown-fields"
_MAX_PATHS_CHARS: Final = 64 * 1024
_RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_EMBEDDED_FIELDS = ("apiVersion", "kind", "metadata")
OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_ENVELOPE = ("apiVersion", "kind")
Schema = Mapping[str, Any]
"""One JSONSchemaProps object."""

_NO_PROPERTIES: Mapping[str, Structure] = {}


class Structure(msgspec.Struct, frozen=True, kw_only=True):
    """One node of a structural schema.

    `type` is empty for any value. `values` is the structure of a map's values; `is_open` permits
    fields that are not specified (`x-kubernetes-preserve-unknown-fields`). An embedded resource
    has apiVersion, kind and metadata, which always exist. `list_type` is `atomic`, `set` or `map`;
    `map_type` `granular` or `atomic`.
    """

    type: str = ""
    properties: Mapping[str, Structure] = msgspec.field(default_factory=dict)
    items: Structure | None = None
    values: Structure | None = None
    is_open: bool = False
    is_embedded: bool = False
    is_nullable: bool = False
    has_default: bool = False
    default: Any = None
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    map_type: str = "granular"


def has_embedded(structure: Structure) -> bool:
    """Return whether there are embedded resources anywhere in a structure."""
    below = [*structure.properties.values(), structure.items, structure.values]
    return structure.is_embedded or any(has_embedded(inner) for inner in below if inner)


ANYTHING = Structure(is_open=True)
"""The structure of a value that is not specified inside an open one."""

NOTHING = Structure()
"""The structure of a value without schema: of an object, no field is kept."""


def compile_structure(schema: Schema) -> Structure:
    """Return the structure of a schema that passed the validation of its definition."""
    is_open = bool(schema.get(_OPEN))
    items = schema.get("items")
    if isinstance(items, dict) and is_open:
        # The items of an open list are open, too.
        items = {**items, _OPEN: True}
    properties = schema.get("properties", {})
    return Structure(
        type=schema.get("type", ""),
        properties={name: compile_structure(inner) for name, inner in properties.items()}
        or _NO_PROPERTIES,
        items=compile_structure(items) if isinstance(items, dict) else None,
        values=None if properties else _values(schema.get("additionalProperties")),
        is_open=is_open or (bool(properties) and "additionalProperties" in schema),
        is_embedded=bool(schema.get("x-kubernetes-embedded-resource")),
        is_nullable=bool(schema.get("nullable")),
        has_default=schema.get("default") is not None,
        default=schema.get("default"),
        list_type=schema.get("x-kubernetes-list-type") or "atomic",
        list_keys=tuple(schema.get("x-kubernetes-list-map-keys", ())),
        map_type=schema.get("x-kubernetes-map-type") or "granular",
    )


def _values(additional: Any) -> Structure | None:
    """Return the structure of a map's values; where any are permitted, objects lose all fields."""
    if isinstance(additional, dict):
        return compile_structure(additional)
    return None if additional is None else NOTHING


_Place = tuple["_Place | None", "str | int"]
"""The place around, and the field or the index in it."""


def prune(obj: dict[str, Any], structure: Structure) -> list[str]:
    """Remove unknown fields of a custom resource in place; return their paths in walk order.

    apiVersion, kind and metadata of the resource and of embedded resources stay. Of the paths, the
    first 64 KiB are returned.
    """
    paths: list[str] = []
    left = _MAX_PATHS_CHARS
    for place in _prune(obj, structure, None, is_resource=True):
        if left > 0:
            path = _text(place, left)
            left -= len(path)
            paths.append(path)
    return paths


def has_unknown_fields(value: Any, structure: Structure, *, is_resource: bool) -> bool:
    """Return whether pruning would remove fields of a value, as a resource's or of any value."""
    is_resource = is_resource or structure.is_embedded
    return any(True for _ in _prune(deepcopy(value), structure, None, is_resource=is_resource))


def _text(place: _Place, most_chars: int) -> str:
    """Return the path of a place, its end cut off at a limit."""
    parts: list[str] = []
    at: _Place | None = place
    while at is not None:
        at, part = at
        parts.append(f"[{part}]" if isinstance(part, int) else f".{part}")
    return "".join(part[:most_chars] for part in reversed(parts)).removeprefix(".")[:most_chars]


def _prune(
    value: Any, structure: Structure, place: _Place | None, *, is_resource: bool
) -> Iterator[_Place]:
    if isinstance(value, dict):
        yield from _prune_object(value, structure, place, is_resource=is_resource)
    elif isinstance(value, list):
        items = structure.items or (ANYTHING if structure.is_open else NOTHING)
        for index, item in enumerate(value):
            yield from _prune(item, items, (place, index), is_resource=items.is_embedded)


def _prune_object(
    obj: dict[str, Any], structure: Structure, place: _Place | None, *, is_resource: bool
) -> Iterator[_Place]:
    for name in list(obj):
        if is_resource and name in _RESOURCE_FIELDS:
            continue
        inner = structure.properties.get(name) or structure.values
        if inner is not None:
            yield from _prune(obj[name], inner, (place, name), is_resource=inner.is_embedded)
        elif not structure.is_open:
            del obj[name]
            yield place, name


Fits = Callable[[Any], bool]
_NOT_SCALAR = frozenset({dict, list, float})
"""Floats too: whole ones become integers."""


def _anything(_: Any) -> bool:
    return True


def _nothing(_: Any) -> bool:
    return False


def _scalar(value: Any) -> bool:
    return value is not None and not isinstance(value, dict | list | float)


def compile_fits(structure: Structure, *, completes: bool) -> Fits:
    """Return whether a resource fits, as a function: true is certain, false may be caution.

    `completes`: whether absent fields get their defaults.
    """
    checks = _checks(structure, completes=completes)
    checks |= dict.fromkeys(_EMBEDDED_FIELDS, _anything)
    return _object(structure, checks, completes=completes)


def _compiled(structure: Structure, *, completes: bool) -> Fits:
    if structure.is_embedded:
        return _nothing
    if structure.type == "array":
        return _list(structure, completes=completes)
    if structure.type == "object" or structure.properties or structure.values:
        return _object(structure, _checks(structure, completes=completes), completes=completes)
    if structure.is_open:
        return _anything
    return _scalar


def _checks(structure: Structure, *, completes: bool) -> dict[str, Fits]:
    return {
        name: _compiled(inner, completes=completes) for name, inner in structure.properties.items()
    }


def _object(structure: Structure, checks: Mapping[str, Fits], *, completes: bool) -> Fits:
    if structure.values is not None:
        rest = _compiled(structure.values, completes=completes)
    else:
        rest = _anything if structure.is_open else _nothing
    needed = frozenset(
        name for name, inner in structure.properties.items() if completes and inner.has_default
    )
    find = checks.get

    def fits(value: Any) -> bool:
        if type(value) is not dict or not needed <= value.keys():
            return False
        for name, member in value.items():
            check = find(name, rest)
            if check is _scalar:
                # As `_scalar`, without the call.
                if member is None or type(member) in _NOT_SCALAR:
                    return False
            elif not check(member):
                return False
        return True

    return fits


def _list(structure: Structure, *, completes: bool) -> Fits:
    if structure.items is not None:
        check = _compiled(structure.items, completes=completes)
    else:
        check = _anything if structure.is_open else _scalar

    def fits(value: Any) -> bool:
        return type(value) is list and all(map(check, value))

    return fits


def types_of(type_name: str, structure: Structure) -> Iterator[Type]:
    """Yield the type of a custom resource and of every object in it."""
    own = {
        name: inner
        for name, inner in structure.properties.items()
        if name not in ("metadata", *_ENVELOPE)
    }
    fields = (
        *(Field(name=name, kind="string") for name in _ENVELOPE),
        Field(name="metadata", kind="object", type=OBJECT_META, is_always=True),
        *(_field(type_name, name, inner) for name, inner in own.items()),
    )
    yield Type(name=type_name, fields=fields, is_open=structure.is_open)
    for name, inner in own.items():
        yield from _inner_types(f"{type_name}.{name}", inner)


def _inner_types(name: str, structure: Structure) -> Iterator[Type]:
    """Yield the type of an object, or of the objects in a list or map, and those below."""
    content = structure.items or structure.values or structure
    if not content.properties:
        return
    fields = tuple(_field(name, key, inner) for key, inner in content.properties.items())
    yield Type(name=name, fields=fields, is_open=content.is_open)
    for key, inner in content.properties.items():
        yield from _inner_types(f"{name}.{key}", inner)


def _field(owner: str, name: str, structure: Structure) -> Field:
    type_name = f"{owner}.{name}"
    if structure.items is not None:
        return _list_field(name, type_name, structure, structure.items)
    if structure.values is not None:
        is_object = bool(structure.values.properties)
        return Field(
            name=name,
            kind="object" if is_object else "any",
            container="map",
            type=type_name if is_object else "",
            map_type=structure.map_type,
        )
    if structure.properties:
        return Field(name=name, kind="object", type=type_name, map_type=structure.map_type)
    return Field(name=name, kind="any")


def _list_field(name: str, type_name: str, structure: Structure, items: Structure) -> Field:
    is_object = bool(items.properties)
    return Field(
        name=name,
        kind="object" if is_object else "any",
        container="list",
        type=type_name if is_object else "",
        list_type=structure.list_type,
        list_keys=structure.list_keys,
    )
