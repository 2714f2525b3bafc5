"""Defaulting of custom resources. Source: API docs "Defaulting", "Defaulting and Nullable"."""

from __future__ import annotations

import copy
from typing import Any

from moorage.registry.custom.structure import Structure


def set_defaults(obj: dict[str, Any], structure: Structure) -> None:
    """Set the defaults of absent fields in place, and of null ones that are not nullable.

    A null of a field that is not nullable and has no default is removed.
    """
    _default(obj, structure)


def remove_nulls(value: Any, structure: Structure) -> None:
    """Remove in place the nulls of fields that are neither nullable nor have a default."""
    if isinstance(value, dict):
        for name in list(value):
            inner = structure.properties.get(name) or structure.values
            if inner is None:
                continue
            if value[name] is not None or inner.is_nullable or inner.has_default:
                remove_nulls(value[name], inner)
            else:
                del value[name]
    elif isinstance(value, list) and structure.items is not None:
        for item in value:
            remove_nulls(item, structure.items)


def _default(value: Any, structure: Structure) -> None:
    if isinstance(value, dict):
        _default_object(value, structure)
    elif isinstance(value, list) and structure.items is not None:
        for index, item in enumerate(value):
            if item is None and structure.items.has_default and not structure.items.is_nullable:
                value[index] = copy.deepcopy(structure.items.default)
            _default(value[index], structure.items)


def _default_object(obj: dict[str, Any], structure: Structure) -> None:
    for name in list(obj):
        inner = structure.properties.get(name) or structure.values
        if inner is None:
            continue
        if obj[name] is not None or inner.is_nullable:
            _default(obj[name], inner)
        elif inner.has_default:
            obj[name] = copy.deepcopy(inner.default)
        else:
            del obj[name]
    for name, inner in structure.properties.items():
        if inner.has_default and name not in obj:
            obj[name] = copy.deepcopy(inner.default)
            _default(obj[name], inner)
