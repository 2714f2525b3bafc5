"""Reset of fields that a write may not change: they are the server's, or another endpoint's.

Each function restores such fields in place; validation comes after. Source:
registry strategies of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorage.apiserver.registry.kind import Obj


def keep_status(new: Obj, old: Obj) -> None:
    """Keep the status: the main endpoint does not write it."""
    keep(new, old, "status")


def keep_spec(new: Obj, old: Obj) -> None:
    """Keep everything but status and metadata: what a status endpoint may write."""
    for field in new.keys() | old.keys():
        if field not in ("metadata", "status"):
            keep(new, old, field)


def keep_spec_and_labels(new: Obj, old: Obj) -> None:
    """Keep spec and labels: the status endpoints of workloads write neither."""
    keep_spec(new, old)
    keep(new["metadata"], old["metadata"], "labels")


def keep_all_but_status(new: Obj, old: Obj) -> None:
    """The status endpoint writes the status only: metadata that users choose stays too."""
    keep_spec(new, old)
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        keep(new["metadata"], old["metadata"], field)


def drop_status(obj: Obj) -> None:
    """Reset the status of a new object."""
    obj["status"] = {}


def dropping_status(*zeros: str) -> Callable[[Obj], None]:
    """Return a step that resets the status to these fields as 0, which the API always writes."""

    def reset_status(obj: Obj) -> None:
        obj["status"] = dict.fromkeys(zeros, 0)

    return reset_status


def keep(new: Obj, old: Obj, field: str) -> None:
    put(new, field, old.get(field))


def put(obj: Obj, field: str, value: Any) -> None:
    if value is None:
        obj.pop(field, None)
    else:
        obj[field] = value
