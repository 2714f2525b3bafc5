"""Claimed volumes: the persistent volumes that the claims of a pod are bound to.

Each claim and its volume are fetched by name, as the node authorizer allows. Source: kubelet
`desired_state_of_world_populator.go`; KEP-1698 (ephemeral volumes).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from moorage.api.claims import PodClaim, pod_claims
from moorage.api.claims.matching import FILESYSTEM
from moorage.api.claims.pod_claims import foreign_claim
from moorage.api.errors import StatusError
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.api.pods import Pod
from moorage.node.objects import ObjectCache
from moorage.node.pod_facts.containers import members
from moorage.node.volumes.mounted import UnprocessedVolumeError
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from moorage.wire.client.rest import UnreachableError

_BOUND = "Bound"
_BLOCK = "Block"
_PROTECTION = "kubernetes.io/pvc-protection"


@dataclass(frozen=True, slots=True)
class ClaimedVolume:
    """The persistent volume of a pod's volume."""

    volume: PersistentVolume
    is_read_only: bool = False


async def claimed_volumes(
    pod: Pod, objects: ObjectCache, *, max_age_s: float
) -> Mapping[str, ClaimedVolume]:
    """Return the persistent volumes of a pod, by the names of the pod's volumes.

    Raises UnprocessedVolumeError for the first claim that is not bound, or that the pod may not
    use.
    """
    claims = pod_claims(pod.metadata.name, pod.spec.volumes)
    volumes = await asyncio.gather(
        *(_volume_of(pod, claim, objects, max_age_s=max_age_s) for claim in claims)
    )
    return {
        claim.volume: ClaimedVolume(volume, claim.is_read_only)
        for claim, volume in zip(claims, volumes, strict=True)
    }


async def _volume_of(
    pod: Pod, pod_claim: PodClaim, objects: ObjectCache, *, max_age_s: float
) -> PersistentVolume:
    namespace = pod.metadata.namespace
    try:
        claim = await objects.get(
            PERSISTENT_VOLUME_CLAIMS, namespace, pod_claim.name, max_age_s=max_age_s
        )
        problem = _claim_problem(pod_claim, claim)
        if not problem and pod_claim.is_ephemeral and claim is not None:
            foreign = foreign_claim(pod.metadata, claim)
            if foreign:
                raise UnprocessedVolumeError(pod_claim.volume, foreign)
        volume = None
        if not problem and claim is not None:
            name = claim.spec.volume_name
            volume = await objects.get(PERSISTENT_VOLUMES, "", name, max_age_s=max_age_s)
            problem = _volume_problem(name, volume, claim)
    except (StatusError, UnreachableError) as error:
        problem = f"failed to fetch PVC from API server: {error}"
    if problem or volume is None:
        why = f"error processing PVC {namespace}/{pod_claim.name}: {problem}"
        raise UnprocessedVolumeError(pod_claim.volume, why)
    if mode := _mode_problem(pod, pod_claim.volume, volume):
        raise UnprocessedVolumeError(pod_claim.volume, mode)
    return volume


def _claim_problem(pod_claim: PodClaim, claim: PersistentVolumeClaim | None) -> str:
    """Return why a claim cannot be used now, "" if it can."""
    if claim is None:
        return (
            f'failed to fetch PVC from API server: persistentvolumeclaims "{pod_claim.name}" not '
            "found"
        )
    meta = claim.metadata
    # Under protection it goes only after the pods that use it, which may have to be restarted.
    if meta.deletion_timestamp is not None and _PROTECTION not in meta.finalizers:
        return "PVC is being deleted"
    if claim.status.phase != _BOUND:
        return "PVC is not bound"
    return "" if claim.spec.volume_name else "PVC has empty pvc.Spec.VolumeName"


def _volume_problem(
    name: str, volume: PersistentVolume | None, claim: PersistentVolumeClaim
) -> str:
    """Return why the volume of a claim cannot be used, "" if it can."""
    if volume is None:
        return f'failed to fetch PV {name} from API server: persistentvolumes "{name}" not found'
    reference, uid = volume.spec.claim_ref, claim.metadata.uid
    if reference is None:
        return (
            f"found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet "
            "bound to the claim"
        )
    if reference.uid != uid:
        return (
            f"found PV object {name} but its pv.Spec.ClaimRef.UID {reference.uid} does not point "
            f"to claim.UID {uid}"
        )
    return ""


def _mode_problem(pod: Pod, name: str, volume: PersistentVolume) -> str:
    """Return how the pod's containers use a file system or block device wrongly, "" if not."""
    mode = volume.spec.volume_mode or FILESYSTEM
    containers = [member.container for member in members(pod.spec)]
    is_mounted = any(mount.name == name for one in containers for mount in one.volume_mounts)
    is_device = any(device.name == name for one in containers for device in one.volume_devices)
    if is_mounted and mode != FILESYSTEM:
        return f"volume {name} has volumeMode {mode}, but is specified in volumeMounts"
    if is_device and mode != _BLOCK:
        return f"volume {name} has volumeMode {mode}, but is specified in volumeDevices"
    return ""
