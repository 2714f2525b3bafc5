"""Status of PersistentVolumes: it says since when a volume is in its phase.

Source: `persistentvolume` strategy of Kubernetes 1.36, KEP-3762.
"""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.preparation import keep_spec

_SINCE = "lastPhaseTransitionTime"


def prepare_volume(volume: Obj) -> None:
    """Reset the status of a new volume: Pending, from now on."""
    volume["status"] = {"phase": "Pending"}
    if "creationTimestamp" in volume["metadata"]:
        volume["status"][_SINCE] = volume["metadata"]["creationTimestamp"]


def prepare_volume_status(new: Obj, old: Obj) -> None:
    """Keep everything but the status, and the time of the phase if both stay."""
    keep_spec(new, old)
    status, was = new.setdefault("status", {}), old.get("status", {})
    if status.get("phase") == was.get("phase") and _SINCE in was:
        status.setdefault(_SINCE, was[_SINCE])


def stamp_phase(new: Obj, old: Obj, now: str) -> None:
    """Set the time of a new phase, unless the writer did."""
    status, was = new.get("status", {}), old.get("status", {})
    has_changed = status.get("phase") != was.get("phase")
    if has_changed and status.get(_SINCE) in (None, was.get(_SINCE)):
        status[_SINCE] = now
