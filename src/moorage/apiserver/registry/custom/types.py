"""Merge types of custom resources: what server-side apply knows of a structure.

Values stay as they are written: these types say how lists and maps are merged and owned, never how
a value is decoded. Source: API docs "Merge strategy" (`x-kubernetes-list-type`, `map-type`).
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.apiserver.registry.custom.structure import Structure
from moorage.apiserver.registry.schema.types import Field, Type

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_ENVELOPE = ("apiVersion", "kind")


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
        return _list(name, type_name, structure, structure.items)
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


def _list(name: str, type_name: str, structure: Structure, items: Structure) -> Field:
    is_object = bool(items.properties)
    return Field(
        name=name,
        kind="object" if is_object else "any",
        container="list",
        type=type_name if is_object else "",
        list_type=structure.list_type,
        list_keys=structure.list_keys,
    )
