"""Claims of a pod: those that its volumes name, and those made for its ephemeral volumes.

Source: core/v1 `PersistentVolumeClaimVolumeSource`, KEP-1698 (generic ephemeral volumes).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from moorage.api.meta import ObjectMeta
from moorage.api.persistent_volumes import PersistentVolumeClaim, PersistentVolumeSpec
from moorage.api.volumes import EphemeralVolumeSource, PersistentVolumeClaimVolumeSource

# Sources of persistent volumes, by their API names. Source: core/v1 `PersistentVolumeSource`.

_OTHER_FIELDS = frozenset({
    "capacity", "access_modes", "claim_ref", "persistent_volume_reclaim_policy",
    "storage_class_name", "mount_options", "volume_mode", "node_affinity",
    "volume_attributes_class_name",
})  # fmt: skip
_SOURCES = {
    field.name: field.encode_name
    for field in msgspec.structs.fields(PersistentVolumeSpec)
    if field.name not in _OTHER_FIELDS
}


def source_kind(spec: PersistentVolumeSpec) -> str:
    """Return the kind of a volume's source by its API name, "unknown" without one."""
    named = (name for field, name in _SOURCES.items() if getattr(spec, field) is not None)
    return next(named, "unknown")


class ClaimingVolume(Protocol):
    """What decides whether a volume of a pod has a claim."""

    @property
    def name(self) -> str: ...
    @property
    def persistent_volume_claim(self) -> PersistentVolumeClaimVolumeSource | None: ...
    @property
    def ephemeral(self) -> EphemeralVolumeSource | None: ...


class PodClaim(msgspec.Struct, frozen=True):
    """A claim of a pod: the name of the volume, and that of the claim in the pod's namespace."""

    volume: str
    name: str
    is_ephemeral: bool = False
    is_read_only: bool = False


def pod_claims(pod_name: str, volumes: Iterable[ClaimingVolume]) -> tuple[PodClaim, ...]:
    """Return the claims of a pod, in the order of its volumes."""
    claims = (claim_of(pod_name, volume) for volume in volumes)
    return tuple(claim for claim in claims if claim is not None)


def claim_of(pod_name: str, volume: ClaimingVolume) -> PodClaim | None:
    """Return the claim of one volume; None if it has none."""
    source = volume.persistent_volume_claim
    if source is not None:
        return PodClaim(volume.name, source.claim_name, is_read_only=source.read_only)
    if volume.ephemeral is not None:
        return PodClaim(volume.name, f"{pod_name}-{volume.name}", is_ephemeral=True)
    return None


def foreign_claim(pod: ObjectMeta, claim: PersistentVolumeClaim) -> str:
    """Return why a claim is not that of the pod's ephemeral volume, "" if it is."""
    meta = claim.metadata
    if any(owner.controller and owner.uid == pod.uid for owner in meta.owner_references):
        return ""
    return (
        f"PVC {meta.namespace}/{meta.name} was not created for pod {pod.namespace}/{pod.name} "
        "(pod is not owner)"
    )
