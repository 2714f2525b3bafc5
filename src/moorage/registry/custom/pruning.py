"""Pruning: removes the fields that the structure of a custom resource does not specify.

Source: API docs "Field pruning".
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from moorage.registry.custom.structure import ANYTHING, NOTHING, Structure

_RESOURCE_FIELDS = frozenset({"apiVersion", "kind", "metadata"})


def prune(obj: dict[str, Any], structure: Structure) -> list[str]:
    """Remove unknown fields of a custom resource in place; return their paths in walk order.

    apiVersion, kind and metadata of the resource and of embedded resources stay.
    """
    return list(_prune(obj, structure, "", is_resource=True))


def has_unknown_fields(value: Any, structure: Structure, *, is_resource: bool) -> bool:
    """Return whether pruning would remove fields of a value, as a resource's or of any value."""
    return bool(
        list(
            _prune(deepcopy(value), structure, "", is_resource=is_resource or structure.is_embedded)
        )
    )


def _prune(value: Any, structure: Structure, path: str, *, is_resource: bool) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _prune_object(value, structure, path, is_resource=is_resource)
    elif isinstance(value, list):
        items = structure.items or (ANYTHING if structure.is_open else NOTHING)
        for index, item in enumerate(value):
            yield from _prune(item, items, f"{path}[{index}]", is_resource=items.is_embedded)


def _prune_object(
    obj: dict[str, Any], structure: Structure, path: str, *, is_resource: bool
) -> Iterator[str]:
    for name in list(obj):
        if is_resource and name in _RESOURCE_FIELDS:
            continue
        at = f"{path}.{name}" if path else name
        inner = structure.properties.get(name) or structure.values
        if inner is not None:
            yield from _prune(obj[name], inner, at, is_resource=inner.is_embedded)
        elif not structure.is_open:
            del obj[name]
            yield at
