"""Ratcheting: an update may keep what a schema that has become stricter forbids.

An error counts only where something on the way to it has changed: a value that equals the old one
at the same place, found by keys, stays as it is. Source: KEP-4008; apiextensions
`validation/ratcheting` of Kubernetes 1.37.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.custom.structure import NOTHING, Structure
from moorage.apiserver.registry.kind import Obj

_WHOLE = re.compile(r'"([^"]*)" must (?:not )?validate')
_INDEX = re.compile(r"\[(\d+)\]")
_DUPLICATE = "FieldValueDuplicate"


def ratcheted(
    errors: list[FieldError],
    new: Obj,
    old: Obj,
    structure: Structure,
    errors_of: Callable[[Obj], Iterable[FieldError]],
) -> list[FieldError]:
    """Return the errors of an update that count. `errors_of` returns those of an object."""
    if any(error.kind == _DUPLICATE for error in errors) and any(
        error.kind == _DUPLICATE for error in errors_of(old)
    ):
        errors = [error for error in errors if error.kind != _DUPLICATE]
    return [error for error in errors if not _is_kept(new, old, structure, _path(error))]


def _path(error: FieldError) -> str:
    """Return the path of the value that an error is about; some have it in their text alone."""
    match = _WHOLE.search(error.text)
    return match.group(1) if match else error.field


def _is_kept(new: Any, old: Any, structure: Structure, path: str) -> bool:
    """Return whether a value on the path equals the old one at the same place."""
    while path:
        step = _step(new, old, structure, path)
        if step is None:
            return False
        new, old, structure, path = step
        if new == old:
            return True
    return False


def _step(
    new: Any, old: Any, structure: Structure, path: str
) -> tuple[Any, Any, Structure, str] | None:
    """Return the values and the rest of the path one step below, None without an old value."""
    if isinstance(new, dict) and isinstance(old, dict):
        keys = [key for key in new if path == key or path.startswith((f"{key}.", f"{key}["))]
        key = max(keys, key=len, default="")
        if not key or key not in old:
            return None
        inner = structure.properties.get(key) or structure.values or NOTHING
        return new[key], old[key], inner, path[len(key) :].removeprefix(".")
    match = _INDEX.match(path)
    if match and isinstance(new, list) and isinstance(old, list) and structure.items is not None:
        item = new[int(match.group(1))]
        before = _same_item(item, old, structure)
        if before is not None:
            return item, before, structure.items, path[match.end() :].removeprefix(".")
    return None


def _same_item(item: Any, old: list[Any], structure: Structure) -> Any:
    """Return the old item of the same keys, None without one or in a list without keys."""
    if structure.list_type != "map" or not isinstance(item, dict):
        return None
    wanted = [item.get(key) for key in structure.list_keys]
    for candidate in old:
        if not isinstance(candidate, dict):
            continue
        if [candidate.get(key) for key in structure.list_keys] == wanted:
            return candidate
    return None
