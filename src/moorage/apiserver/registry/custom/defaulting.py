"""Defaulting of custom resources, within a budget of bytes.

A list of empty objects whose fields have large defaults grows without bound: 15 KB of body came to
gigabytes. Source: API docs "Defaulting", "Defaulting and Nullable".
"""

from __future__ import annotations

import copy
from typing import Any, Final

import msgspec

from moorage.api.errors import TooLargeError
from moorage.apiserver.registry.custom.structure import Structure

MAX_DEFAULT_BYTES: Final = 3 * 1024 * 1024
"""As much as an object may have."""

_VALUE_BYTES: Final = 32
"""What a value costs in memory beside its text, at least."""


class _Budget:
    """What the defaults of one object may still add. Sizes are computed once for each default."""

    def __init__(self) -> None:
        self._left = MAX_DEFAULT_BYTES
        self._sizes: dict[int, int] = {}

    def copy(self, name: str, structure: Structure) -> Any:
        """Return a copy of a default, of a field or an item. Raises TooLargeError."""
        size = self._sizes.get(id(structure))
        if size is None:
            text = msgspec.json.encode(structure.default)
            values = 1 + text.count(b",") + text.count(b"{") + text.count(b"[")
            size = self._sizes[id(structure)] = len(text) + _VALUE_BYTES * values
        self._left -= size + len(name)
        if self._left < 0:
            raise TooLargeError(
                "Request entity too large: the defaults of the custom resource's schema add more "
                f"than {MAX_DEFAULT_BYTES} bytes to the object"
            )
        return copy.deepcopy(structure.default)


def set_defaults(obj: dict[str, Any], structure: Structure) -> None:
    """Set the defaults of absent fields in place, and of null ones that are not nullable.

    A null of a field that is not nullable and has no default is removed. Raises TooLargeError when
    the defaults together have more than 3 MiB.
    """
    _default(obj, structure, _Budget())


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


def _default(value: Any, structure: Structure, budget: _Budget) -> None:
    if isinstance(value, dict):
        _default_object(value, structure, budget)
    elif isinstance(value, list) and structure.items is not None:
        for index, item in enumerate(value):
            if item is None and structure.items.has_default and not structure.items.is_nullable:
                value[index] = budget.copy("", structure.items)
            _default(value[index], structure.items, budget)


def _default_object(obj: dict[str, Any], structure: Structure, budget: _Budget) -> None:
    for name in list(obj):
        inner = structure.properties.get(name) or structure.values
        if inner is None:
            continue
        if obj[name] is not None or inner.is_nullable:
            _default(obj[name], inner, budget)
        elif inner.has_default:
            obj[name] = budget.copy(name, inner)
        else:
            del obj[name]
    for name, inner in structure.properties.items():
        if inner.has_default and name not in obj:
            obj[name] = budget.copy(name, inner)
            _default(obj[name], inner, budget)
