"""Defaults of volume claims and of their templates."""

from __future__ import annotations

from moorage.apiserver.registry.defaults.pod_template import round_amounts, round_resources
from moorage.apiserver.registry.kind import Obj


def default_volume_claim(claim: Obj) -> None:
    """Set the API defaults of a PersistentVolumeClaim."""
    spec, status = claim.setdefault("spec", {}), claim.setdefault("status", {})
    spec.setdefault("volumeMode", "Filesystem")
    status.setdefault("phase", "Pending")
    if "resources" in spec:
        round_resources(spec["resources"])
    for field in ("capacity", "allocatedResources"):
        if field in status:
            round_amounts(status[field])
