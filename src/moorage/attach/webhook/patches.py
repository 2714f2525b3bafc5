"""Patches: what changed between two objects, as a JSON Patch. Source: RFC 6902, RFC 6901."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Operation = dict[str, Any]


def patch_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Operation]:
    """Return the operations that make `after` of `before`. Lists are replaced as wholes."""
    return [*_operations(before, after, "")]


def _operations(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str
) -> Iterator[Operation]:
    for key in before.keys() - after.keys():
        yield {"op": "remove", "path": _below(path, key)}
    for key, value in after.items():
        if key not in before:
            yield {"op": "add", "path": _below(path, key), "value": value}
            continue
        old = before[key]
        if old is value or (type(old) is type(value) and old == value):
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            yield from _operations(old, value, _below(path, key))
        else:
            yield {"op": "replace", "path": _below(path, key), "value": value}


def _below(path: str, key: str) -> str:
    return f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
