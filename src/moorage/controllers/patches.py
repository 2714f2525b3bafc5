"""Status patches: zero values leave the object, as in the API's own encoding."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.meta import Object, ObjectMeta


def status_patch(meta: ObjectMeta, before: Object, after: Object) -> dict[str, Any]:
    """A merge patch that turns one status into another, at exactly the version that was read."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    changes: dict[str, Any] = {
        key: new.get(key) for key in old.keys() | new.keys() if old.get(key) != new.get(key)
    }
    return {"metadata": locked(meta), "status": changes}


def locked(meta: ObjectMeta) -> dict[str, Any]:
    """Metadata of a patch that applies only to the very version that was read."""
    return {"uid": meta.uid, "resourceVersion": meta.resource_version}
