"""Cells that claims and volumes share."""

from __future__ import annotations

from collections.abc import Iterable

from moorage.api.claims.annotations import BETA_CLASS
from moorage.apiserver.registry.kind import Obj

UNSET = "<unset>"

_SHORT_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def access_modes_text(modes: Iterable[str]) -> str:
    """Return access modes in short form, in a fixed order."""
    present = set(modes)
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in present)


def phase_text(obj: Obj) -> str:
    """Return the phase, or that the object is being deleted."""
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    return str(obj.get("status", {}).get("phase", ""))


def class_text(obj: Obj) -> str:
    """Return the storage class; the annotation of old wins."""
    annotations = obj["metadata"].get("annotations", {})
    name = annotations.get(BETA_CLASS, obj.get("spec", {}).get("storageClassName", ""))
    return str(name)
