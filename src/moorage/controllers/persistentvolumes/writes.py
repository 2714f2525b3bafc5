"""Writes of the volume controller: bindings, phases, provisioners, as patches of one revision.

Each returns the object as stored, for the write that follows. Raises ConflictError when the object
has changed since it was read: the step is then decided again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api import quantity
from moorage.api.claims import binding_patch
from moorage.api.claims.annotations import (
    BETA_STORAGE_PROVISIONER,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    YES,
)
from moorage.api.claims.binding import capacity
from moorage.api.claims.classes import FINALIZER
from moorage.api.clock import Clock, format_time
from moorage.api.persistent_volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
)
from moorage.controllers.persistentvolumes.claim_steps import BOUND, PENDING, Announcement
from moorage.controllers.requests import locked, status_patch
from moorage.wire.client.recorder import EventRecorder, reference
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from moorage.wire.client.rest import Client


class VolumeWrites:
    """Writes claims and volumes, and the events about them."""

    def __init__(self, client: Client, recorder: EventRecorder, clock: Clock) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock

    def announce_claim(self, claim: PersistentVolumeClaim, event: Announcement) -> None:
        about = reference(PERSISTENT_VOLUME_CLAIMS, claim)
        self._recorder.record(about, event.type, event.reason, event.message)

    def announce_volume(self, volume: PersistentVolume, event: Announcement) -> None:
        about = reference(PERSISTENT_VOLUMES, volume)
        self._recorder.record(about, event.type, event.reason, event.message)

    async def bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Bind a volume and a claim, or complete that: the volume first, each with its status."""
        patch = binding_patch(volume, claim)
        if patch is not None:
            volume = await self.patch_volume(volume, patch)
        volume = await self.set_volume_phase(volume, BOUND)
        claim = await self._name_volume(claim, volume)
        await self.set_claim_phase(claim, BOUND, volume)

    async def unbind(self, volume: PersistentVolume) -> None:
        """Free a volume from its claim; a user's reservation by name stays."""
        metadata: dict[str, Any] = locked(volume.metadata)
        claim_ref: dict[str, None] | None = {"uid": None}
        if BOUND_BY_CONTROLLER in volume.metadata.annotations:
            metadata["annotations"] = {BOUND_BY_CONTROLLER: None}
            claim_ref = None
        volume = await self.patch_volume(
            volume, {"metadata": metadata, "spec": {"claimRef": claim_ref}}
        )
        await self.set_volume_phase(volume, "Available")

    async def set_claim_phase(
        self, claim: PersistentVolumeClaim, phase: str, volume: PersistentVolume | None = None
    ) -> PersistentVolumeClaim:
        """Set the claim's phase, and access modes and capacity as its volume has them."""
        status = claim_status(claim, phase, volume)
        if status == claim.status:
            return claim
        patch = status_patch(claim.metadata, claim.status, status)
        return await self._patch_claim(claim, patch, subresource="status")

    async def set_volume_phase(
        self, volume: PersistentVolume, phase: str, message: str = ""
    ) -> PersistentVolume:
        """Set the volume's phase, if it changes."""
        if volume.status.phase == phase:
            return volume
        status = msgspec.structs.replace(
            volume.status,
            phase=phase,
            message=message,
            last_phase_transition_time=format_time(self._clock.now()),
        )
        patch = status_patch(volume.metadata, volume.status, status)
        return await self.patch_volume(volume, patch, subresource="status")

    async def assign_class(self, claim: PersistentVolumeClaim, name: str) -> None:
        patch = {"metadata": locked(claim.metadata), "spec": {"storageClassName": name}}
        await self._patch_claim(claim, patch)

    async def name_provisioner(
        self, claim: PersistentVolumeClaim, provisioner: str
    ) -> PersistentVolumeClaim:
        """Annotate the claim with the provisioner that is to make its volume."""
        wanted = {BETA_STORAGE_PROVISIONER: provisioner, STORAGE_PROVISIONER: provisioner}
        if wanted.items() <= claim.metadata.annotations.items():
            return claim
        return await self._annotate(claim, wanted)

    async def unselect_node(self, claim: PersistentVolumeClaim) -> None:
        """Have the scheduler choose again."""
        await self._annotate(claim, {SELECTED_NODE: None})

    async def create_volume(self, body: dict[str, Any]) -> PersistentVolume:
        """Create a volume. Raises AlreadyExistsError."""
        return await self._client.create(PERSISTENT_VOLUMES, body)

    async def delete_volume(self, volume: PersistentVolume) -> None:
        meta = volume.metadata
        await self._client.delete(
            PERSISTENT_VOLUMES, meta.name, uid=meta.uid, resource_version=meta.resource_version
        )

    async def let_go(self, volume: PersistentVolume) -> None:
        """Remove our finalizer from a volume whose node, and so its directory, is gone."""
        kept = [name for name in volume.metadata.finalizers if name != FINALIZER]
        patch = {"metadata": {**locked(volume.metadata), "finalizers": kept}}
        await self.patch_volume(volume, patch)

    async def patch_volume(
        self, volume: PersistentVolume, patch: dict[str, Any], *, subresource: str | None = None
    ) -> PersistentVolume:
        return await self._client.patch(
            PERSISTENT_VOLUMES, volume.metadata.name, patch, subresource=subresource
        )

    async def _name_volume(
        self, claim: PersistentVolumeClaim, volume: PersistentVolume
    ) -> PersistentVolumeClaim:
        annotations: dict[str, str] = {}
        patch: dict[str, Any] = {}
        if claim.spec.volume_name != volume.metadata.name:
            patch["spec"] = {"volumeName": volume.metadata.name}
            annotations[BOUND_BY_CONTROLLER] = YES
        if BIND_COMPLETED not in claim.metadata.annotations:
            annotations[BIND_COMPLETED] = YES
        if not patch and not annotations:
            return claim
        patch["metadata"] = {**locked(claim.metadata), "annotations": annotations}
        return await self._patch_claim(claim, patch)

    async def _annotate(
        self, claim: PersistentVolumeClaim, annotations: dict[str, Any]
    ) -> PersistentVolumeClaim:
        patch = {"metadata": {**locked(claim.metadata), "annotations": annotations}}
        return await self._patch_claim(claim, patch)

    async def _patch_claim(
        self, claim: PersistentVolumeClaim, patch: dict[str, Any], *, subresource: str | None = None
    ) -> PersistentVolumeClaim:
        meta = claim.metadata
        return await self._client.patch(
            PERSISTENT_VOLUME_CLAIMS, meta.name, patch, meta.namespace, subresource=subresource
        )


def claim_status(
    claim: PersistentVolumeClaim, phase: str, volume: PersistentVolume | None
) -> PersistentVolumeClaimStatus:
    """Return the status of a claim that enters a phase, with this volume if it has one.

    A bound claim keeps its capacity: a file system may be smaller than its volume.
    """
    before = claim.status
    if volume is None:
        return PersistentVolumeClaimStatus(phase=phase)
    has_entered = before.phase != phase
    listed = before.capacity
    if has_entered and quantity.parse(listed.get("storage", "0")) != capacity(volume):
        listed = volume.spec.capacity
    attributes = before.current_volume_attributes_class_name
    if before.phase in ("", PENDING) and has_entered:
        attributes = volume.spec.volume_attributes_class_name
    return PersistentVolumeClaimStatus(
        phase=phase,
        access_modes=volume.spec.access_modes,
        capacity=listed,
        current_volume_attributes_class_name=attributes,
    )
