"""Status patches: fields set to zero values are removed, as in the API's own encoding."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.meta import Object, ObjectMeta


def status_patch(meta: ObjectMeta, before: Object, after: Object) -> dict[str, Any]:
    """Return the merge patch from one status to the other.

    It applies only to the resourceVersion that was read.
    """
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    changes: dict[str, Any] = {
        key: _change(old.get(key), new.get(key))
        for key in old.keys() | new.keys()
        if old.get(key) != new.get(key)
    }
    return {"metadata": locked(meta), "status": changes}


def _change(before: Any, after: Any) -> Any:
    """Return a field's part of a merge patch, which removes the keys that a map has lost."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {**dict.fromkeys(before), **after}
    return after


def locked(meta: ObjectMeta) -> dict[str, Any]:
    """Return patch metadata that applies only to the uid and resourceVersion that were read."""
    return {"uid": meta.uid, "resourceVersion": meta.resource_version}
