"""Matching of volumes and claims: the smallest volume that has all that a claim asks for.

Source: API docs "Persistent Volumes", section "Binding"; component-helpers `FindMatchingVolume`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from moorage.api import quantity
from moorage.api.claims.classes import class_of_claim, class_of_volume
from moorage.api.claims.topology import is_reachable
from moorage.api.labels import EVERYTHING, from_object
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.api.quantity import Quantity

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
