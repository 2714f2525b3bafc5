"""Binding of a volume and a claim: the patch of the volume, and what counts as bound.

The volume is written first: it names its claim by uid. Then the claim names the volume. Whatever
ends between the two writes is completed from the volume. Source: API docs "Persistent Volumes".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from moorage.api import quantity
from moorage.api.claims.annotations import BIND_COMPLETED, BOUND_BY_CONTROLLER, YES
from moorage.api.claims.classes import class_of_claim, class_of_volume, is_reachable
from moorage.api.labels import EVERYTHING, from_object
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.api.quantity import Quantity

# Finalizers that keep claims, volumes and their classes while they are in use.
#
# Source: `volume/util` of Kubernetes 1.36.

CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
ATTRIBUTES_CLASS_PROTECTION = "kubernetes.io/vac-protection"


# Matching of volumes and claims: the smallest volume that has all that a claim asks for.
#
# Source: API docs "Persistent Volumes", section "Binding"; component-helpers `FindMatchingVolume`.

FILESYSTEM = "Filesystem"
AVAILABLE = "Available"
_STORAGE = "storage"


def requested(claim: PersistentVolumeClaim) -> Quantity:
    """Return how much storage a claim asks for."""
    return quantity.parse(claim.spec.resources.requests.get(_STORAGE, "0"))


def capacity(volume: PersistentVolume) -> Quantity:
    """Return how much storage a volume has."""
    return quantity.parse(volume.spec.capacity.get(_STORAGE, "0"))


def is_bound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume names the claim, by its uid if it has one."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    if reference is None or (reference.namespace, reference.name) != (meta.namespace, meta.name):
        return False
    return reference.uid in ("", meta.uid)


def modes_differ(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """Return whether one is a file system and the other a block device."""
    return (claim.spec.volume_mode or FILESYSTEM) != (volume.spec.volume_mode or FILESYSTEM)


def has_access_modes(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume has every access mode of the claim."""
    return set(claim.spec.access_modes) <= set(volume.spec.access_modes)


def mismatch(volume: PersistentVolume, claim: PersistentVolumeClaim) -> str:
    """Return why the volume that a claim names does not satisfy it, "" if it does."""
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.metadata.name}"'
    if capacity(volume) < requested(claim):
        return "requested PV is too small"
    if class_of_volume(volume) != class_of_claim(claim):
        return "storageClassName does not match"
    if _attributes_differ(claim, volume):
        return "volumeAttributesClassName does not match"
    if modes_differ(claim, volume):
        return "incompatible volumeMode"
    if not has_access_modes(volume, claim):
        return "incompatible accessMode"
    return ""


def best_match(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    *,
    node_labels: Mapping[str, str] | None = None,
    excluded: Collection[str] = (),
    is_delayed: bool = False,
) -> PersistentVolume | None:
    """Return the volume that names the claim, else the smallest that fits it; None without one.

    With `node_labels` only volumes that can be used on such a node fit, and a volume that names the
    claim and cannot be used there means None. Without them, a claim whose binding `is_delayed` gets
    only a volume that names it. Raises ValueError for a selector that does not parse.
    """
    raw = claim.spec.selector
    selector = EVERYTHING if raw is None else from_object(raw)
    wanted, storage_class = requested(claim), class_of_claim(claim)
    best: PersistentVolume | None = None
    for volume in volumes:
        if volume.metadata.name in excluded or not _may_have(volume, claim, wanted):
            continue
        is_here = node_labels is None or is_reachable(volume, node_labels)
        if is_bound_to(volume, claim):
            return volume if is_here else None
        if node_labels is None and is_delayed:
            continue
        if (
            not is_here
            or volume.status.phase != AVAILABLE
            or not selector.matches(volume.metadata.labels)
            or class_of_volume(volume) != storage_class
            or not has_access_modes(volume, claim)
        ):
            continue
        if best is None or capacity(volume) < capacity(best):
            best = volume
    return best


def _may_have(volume: PersistentVolume, claim: PersistentVolumeClaim, wanted: Quantity) -> bool:
    """Return whether no other claim has the volume and its form suits the claim."""
    if volume.spec.claim_ref is not None and not is_bound_to(volume, claim):
        return False
    return not (
        volume.metadata.deletion_timestamp is not None
        or capacity(volume) < wanted
        or modes_differ(claim, volume)
        or _attributes_differ(claim, volume)
    )


def _attributes_differ(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    return (claim.spec.volume_attributes_class_name or "") != (
        volume.spec.volume_attributes_class_name or ""
    )


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
