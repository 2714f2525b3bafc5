"""Changes of documents: what migration does to a JSON value, before any text is edited.

A transformation returns operations on paths of a document. `applied` gives the document that they
make; `yaml_edits` performs the same operations on the text, and is held to that result.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec

Path = tuple[str | int, ...]
"""Keys of maps and indices of lists, from the root of a document."""


class Replace(msgspec.Struct, frozen=True):
    """Give the scalar at a path another text."""

    path: Path
    value: str


class Insert(msgspec.Struct, frozen=True):
    """Put an entry with a text into the map at a path.

    It becomes the entry below the one of the key `after`, or the map's first.
    """

    path: Path
    key: str
    value: str
    after: str = ""


class Remove(msgspec.Struct, frozen=True):
    """Remove entries from the map at a path."""

    path: Path
    keys: tuple[str, ...]


class LiftSpec(msgspec.Struct, frozen=True):
    """Move what the `spec` of a v1alpha1 RuntimeClass holds up to the map at a path, its class.

    `runtimeHandler` becomes `handler`, with this value; without it, `handler` is new.
    """

    path: Path
    handler: str


Operation = Replace | Insert | Remove | LiftSpec


def applied(document: Any, operations: Sequence[Operation]) -> Any:
    """Return a copy of a document with the operations performed."""
    changed = copy.deepcopy(document)
    for operation in operations:
        _apply(changed, operation)
    return changed


def at(document: Any, path: Path) -> Any:
    """Return the value at a path, which must exist."""
    for step in path:
        document = document[step]
    return document


def _apply(document: Any, operation: Operation) -> None:
    match operation:
        case Replace(path, value):
            at(document, path[:-1])[path[-1]] = value
        case Insert(path=path, key=key, value=value):
            at(document, path)[key] = value
        case Remove(path, keys):
            for key in keys:
                del at(document, path)[key]
        case LiftSpec(path, handler):
            entries = at(document, path)
            spec = entries.pop("spec")
            spec.pop("runtimeHandler", None)
            entries |= spec
            entries["handler"] = handler


def below(path: Path, operations: Sequence[Operation]) -> list[Operation]:
    """Return the operations of a part of a document as operations of the document.

    `path` is the part's path.
    """
    return [
        msgspec.structs.replace(operation, path=(*path, *operation.path))
        for operation in operations
    ]
