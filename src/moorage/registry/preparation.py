"""What a write may not bring along: fields that are the server's, or another endpoint's.

Each function puts such fields back to what they were, in place; validation comes after. Source:
registry strategies of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from moorage.registry.kind import Obj


def keep_status(new: Obj, old: Obj) -> None:
    """The main endpoint does not write the status."""
    keep(new, old, "status")


def keep_spec(new: Obj, old: Obj) -> None:
    """The status endpoint writes the status and metadata, nothing else."""
    for field in new.keys() | old.keys():
        if field not in ("metadata", "status"):
            keep(new, old, field)


def keep_spec_and_labels(new: Obj, old: Obj) -> None:
    """As `keep_spec`, and labels stay too: workloads' status endpoints."""
    keep_spec(new, old)
    keep(new["metadata"], old["metadata"], "labels")


def drop_status(obj: Obj) -> None:
    """A new object has no status yet."""
    obj["status"] = {}


def keep(new: Obj, old: Obj, field: str) -> None:
    put(new, field, old.get(field))


def put(obj: Obj, field: str, value: Any) -> None:
    if value is None:
        obj.pop(field, None)
    else:
        obj[field] = value
