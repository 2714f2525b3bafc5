"""Binding of a volume and a claim: the patch of the volume, and what counts as bound.

The volume is written first: it names its claim by uid. Then the claim names the volume. Whatever
ends between the two writes is completed from the volume. Source: API docs "Persistent Volumes".
"""

from __future__ import annotations

from typing import Any

from moorage.api.claims.annotations import BIND_COMPLETED, BOUND_BY_CONTROLLER, YES
from moorage.api.claims.matching import is_bound_to
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim

BOUND = "Bound"


def is_claim_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim's binding has been completed.

    Its phase is written last, and a node mounts no volume of a claim that is not in phase Bound.
    """
    return (
        bool(claim.spec.volume_name)
        and BIND_COMPLETED in claim.metadata.annotations
        and claim.status.phase == BOUND
    )


def binding_patch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> dict[str, Any] | None:
    """Return the merge patch that makes the volume name the claim; None if it does so fully.

    It applies only to the volume's revision.
    """
    reference, meta = volume.spec.claim_ref, claim.metadata
    if reference is not None and is_bound_to(volume, claim) and reference.uid == meta.uid:
        return None
    metadata: dict[str, Any] = {
        "uid": volume.metadata.uid,
        "resourceVersion": volume.metadata.resource_version,
    }
    if not is_bound_to(volume, claim):
        metadata["annotations"] = {BOUND_BY_CONTROLLER: YES}
    return {"metadata": metadata, "spec": {"claimRef": claim_reference(claim)}}


def claim_reference(claim: PersistentVolumeClaim) -> dict[str, str]:
    """Return the reference by which a volume names its claim."""
    meta = claim.metadata
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
