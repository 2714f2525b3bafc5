"""Protection of VolumeAttributesClasses: one that is deleted stays while it is named.

Source: controller `volumeattributesclass-protection` of kube-controller-manager, KEP-3751.
"""

from __future__ import annotations

from moorage.api.claims.finalizers import ATTRIBUTES_CLASS_PROTECTION
from moorage.api.clock import Clock
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.controllers.finalizers import add_finalizer, remove_finalizer
from moorage.controllers.informers import Informers, wait_synced
from moorage.controllers.objects import ATTRIBUTES_CLASSES
from moorage.controllers.storage_protection.protection import is_leaving, is_unprotected, needs_work
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import PartialObject
from moorage.wire.client.rest import Client


def classes_of_claim(claim: PersistentVolumeClaim | None) -> set[str]:
    """Return the classes of attributes that a claim has, wants, or is being changed to."""
    if claim is None:
        return set()
    status = claim.status
    modified = status.modify_volume_status
    names = {
        claim.spec.volume_attributes_class_name,
        status.current_volume_attributes_class_name,
        modified.target_volume_attributes_class_name if modified is not None else None,
    }
    return {name for name in names if name}


def classes_of_volume(volume: PersistentVolume | None) -> set[str]:
    """Return the class of attributes of a volume, if it has one."""
    name = volume.spec.volume_attributes_class_name if volume is not None else None
    return {name} if name else set()


class AttributesClassProtectionController:
    """Watches the classes, claims and volumes; adds and removes the finalizer of classes."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._classes = informers.attributes_classes
        self._claims = informers.claims
        self._volumes = informers.volumes
        self._queue: WorkQueue[str] = WorkQueue("attributes class protection", clock=clock)
        self._classes.add_handler(self._class_changed)
        self._claims.add_handler(self._claim_changed)
        self._volumes.add_handler(self._volume_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._classes, self._claims, self._volumes)
        await self._queue.run(self._reconcile)

    def _class_changed(self, before: PartialObject | None, after: PartialObject | None) -> None:
        del before
        if after is not None and needs_work(after.metadata, ATTRIBUTES_CLASS_PROTECTION):
            self._queue.add(after.metadata.name)

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
    ) -> None:
        self._released(classes_of_claim(before) - classes_of_claim(after))

    def _volume_changed(
        self, before: PersistentVolume | None, after: PersistentVolume | None
    ) -> None:
        self._released(classes_of_volume(before) - classes_of_volume(after))

    def _released(self, names: set[str]) -> None:
        for name in names:
            self._queue.add(name)

    async def _reconcile(self, name: str) -> float | None:
        attributes_class = self._classes.get(name)
        if attributes_class is None:
            return None
        meta, finalizer = attributes_class.metadata, ATTRIBUTES_CLASS_PROTECTION
        if is_unprotected(meta, finalizer):
            await add_finalizer(self._client, ATTRIBUTES_CLASSES, meta, finalizer)
        elif is_leaving(meta, finalizer) and not self._is_used(name):
            await remove_finalizer(self._client, ATTRIBUTES_CLASSES, meta, finalizer)
        return None

    def _is_used(self, name: str) -> bool:
        return any(name in classes_of_claim(claim) for claim in self._claims) or any(
            name in classes_of_volume(volume) for volume in self._volumes
        )
