"""Pruning: removes the fields that the structure of a custom resource does not specify.

Paths are written out for removed fields alone, and up to a limit: below a key of a megabyte, a
hundred thousand fields have paths of gigabytes.

Source: API docs "Field pruning".
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from moorage.apiserver.registry.custom.structure import ANYTHING, NOTHING, Structure

_MAX_PATHS_CHARS: Final = 64 * 1024

_Place = tuple["_Place | None", "str | int"]
"""The place around, and the field or the index in it."""

_RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


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
