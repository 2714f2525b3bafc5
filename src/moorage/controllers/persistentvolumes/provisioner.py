"""Provisioner of local volumes alone, beside another controller of volumes.

kube-controller-manager names the provisioner in an annotation of the claim and binds the volume
that appears; it leaves a released volume to its provisioner. Source: API docs "Dynamic Volume
Provisioning"; sig-storage-lib-external-provisioner (`shouldProvision`, `shouldDelete`).
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.claims import class_of_claim
from moorage.api.claims.annotations import (
    BETA_STORAGE_PROVISIONER,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
)
from moorage.api.claims.classes import PROVISIONER
from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.controllers.informers import Informers
from moorage.controllers.loop import Loop
from moorage.controllers.persistentvolumes.local_volumes import (
    OF_CLAIM,
    OF_VOLUME,
    Key,
    LocalVolumes,
)
from moorage.controllers.persistentvolumes.provisioning import is_internal
from moorage.controllers.persistentvolumes.volume_steps import is_ours, is_released
from moorage.controllers.persistentvolumes.writes import VolumeWrites
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.rest import Client

_WAITS = "WaitForFirstConsumer"


class LocalPathProvisioner:
    """Watches claims and volumes, and the pods and nodes that they depend on."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._claims = informers.claims
        self._volumes = informers.volumes
        self._classes = informers.storage_classes
        self._local = LocalVolumes(informers, VolumeWrites(client, recorder, clock))
        self.run = Loop(
            "local volumes",
            self._reconcile,
            [
                (self._claims, self._local.keys_of_claim),
                (self._volumes, self._volume_changed),
                (informers.pods, self._local.keys_of_pod),
                (informers.nodes, self._local.keys_of_node),
                (self._classes, None),
            ],
            clock,
        ).run

    def _volume_changed(
        self, before: PersistentVolume | None, after: PersistentVolume | None
    ) -> Iterator[Key]:
        del before
        if after is not None:
            yield OF_VOLUME, after.metadata.name

    async def _reconcile(self, key: Key) -> float | None:
        kind, name = key
        try:
            await (self._sync_claim(name) if kind == OF_CLAIM else self._sync_volume(name))
        except NotFoundError:
            return None  # It is gone.
        return None

    async def _sync_claim(self, key: str) -> None:
        claim = self._claims.get_key(key)
        if claim is None or not _is_to_provision(claim):
            return
        storage_class = self._classes.get(class_of_claim(claim))
        if storage_class is None or not is_internal(storage_class):
            return
        has_node = SELECTED_NODE in claim.metadata.annotations
        if storage_class.volume_binding_mode == _WAITS and not has_node:
            return
        await self._local.provision(claim, storage_class)

    async def _sync_volume(self, name: str) -> None:
        volume = self._volumes.get(name)
        if volume is None or not is_ours(volume) or volume.spec.claim_ref is None:
            return
        is_leaving = volume.metadata.deletion_timestamp is not None
        if is_released(volume) or (is_leaving and not self._has_claim(volume)):
            await self._local.delete(volume)

    def _has_claim(self, volume: PersistentVolume) -> bool:
        reference = volume.spec.claim_ref
        assert reference is not None
        claim = self._claims.get(reference.name, reference.namespace)
        return claim is not None and claim.metadata.uid == reference.uid


def _is_to_provision(claim: PersistentVolumeClaim) -> bool:
    """Return whether the controller of volumes waits for this provisioner."""
    meta = claim.metadata
    named = meta.annotations.get(STORAGE_PROVISIONER) or meta.annotations.get(
        BETA_STORAGE_PROVISIONER
    )
    is_waiting = not claim.spec.volume_name and meta.deletion_timestamp is None
    return is_waiting and named == PROVISIONER
