"""Fitness of values: whether pruning and defaulting would leave a value as it is.

Nearly every body fits its structure already. One compiled walk finds out, in place of the three
that look for objects in the place of lists, prune and set defaults. Hot path: 40 µs for a resource
of 4 KB (bench/custom.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moorage.apiserver.registry.custom.structure import Structure

Fits = Callable[[Any], bool]

_RESOURCE_FIELDS = ("apiVersion", "kind", "metadata")


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
    checks |= dict.fromkeys(_RESOURCE_FIELDS, _anything)
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
