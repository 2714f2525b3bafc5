"""Apply configurations of admission policies: merged like server-side apply, owned by no manager.

What is atomic may not be named: its other fields would be lost. Source: API docs "Mutating
Admission Policy"; apiserver `policy/mutating/patch/smd.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.apiserver.registry.patch.apply import TypedPatchError, check_items, merge_object
from moorage.apiserver.registry.patch.merge_schema import MergeSchema, Part, Shape

Map = dict[str, Any]

_ENVELOPE = ("apiVersion", "kind")


def merge_configuration(
    merge_schema: MergeSchema, type_name: str, live: Map, configuration: Map
) -> Map:
    """Return an object with the fields of a configuration, both of a type.

    Raises TypedPatchError for a keyed list with an item twice, and for atomic parts.
    """
    parts = merge_schema.parts(type_name)
    stated = {name: value for name, value in configuration.items() if name not in _ENVELOPE}
    try:
        check_items(merge_schema, parts, stated, "")
    except TypedPatchError as error:
        raise TypedPatchError(f"failed to convert patch object to typed object: {error}") from error
    if atomics := list(_atomics(merge_schema, parts, stated, "")):
        raise TypedPatchError(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
            + ", ".join(atomics)
        )
    return merge_object(merge_schema, parts, live, stated)


def _atomics(
    merge_schema: MergeSchema, parts: dict[str, Part], obj: Map, path: str
) -> Iterator[str]:
    """Yield the paths of atomic objects, maps and lists."""
    for name, value in obj.items():
        part = parts.get(name)
        if part is None or not isinstance(value, (dict, list)):
            continue
        yield from _atomics_in(merge_schema, part, value, f"{path}.{name}")


def _atomics_in(merge_schema: MergeSchema, part: Part, value: Any, path: str) -> Iterator[str]:
    match part.shape:
        case Shape.LEAF:
            yield path
        case Shape.OBJECT:
            yield from _atomics(merge_schema, merge_schema.parts(part.inner), value, path)
        case Shape.KEYED_LIST:
            inner = merge_schema.parts(part.inner)
            for index, item in enumerate(value):
                yield from _atomics(merge_schema, inner, item, f"{path}[{index}]")
