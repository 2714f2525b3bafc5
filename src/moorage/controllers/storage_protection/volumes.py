"""Protection of volumes: a volume that is deleted stays until it is bound to no claim.

Source: controller `persistentvolume-protection` of kube-controller-manager.
"""

from __future__ import annotations

from moorage.api.claims.finalizers import VOLUME_PROTECTION
from moorage.api.clock import Clock
from moorage.api.persistent_volumes import PersistentVolume
from moorage.controllers.finalizers import add_finalizer, remove_finalizer
from moorage.controllers.informers import Informers, wait_synced
from moorage.controllers.storage_protection.protection import is_leaving, is_unprotected, needs_work
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import PERSISTENT_VOLUMES
from moorage.wire.client.rest import Client

_BOUND = "Bound"


class VolumeProtectionController:
    """Watches volumes; adds and removes their finalizer."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._volumes = informers.volumes
        self._queue: WorkQueue[str] = WorkQueue("volume protection", clock=clock)
        self._volumes.add_handler(self._volume_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._volumes)
        await self._queue.run(self._reconcile)

    def _volume_changed(
        self, before: PersistentVolume | None, after: PersistentVolume | None
    ) -> None:
        del before
        if after is not None and needs_work(after.metadata, VOLUME_PROTECTION):
            self._queue.add(after.metadata.name)

    async def _reconcile(self, name: str) -> float | None:
        volume = self._volumes.get(name)
        if volume is None:
            return None
        meta, is_bound = volume.metadata, volume.status.phase == _BOUND
        if is_unprotected(meta, VOLUME_PROTECTION):
            await add_finalizer(self._client, PERSISTENT_VOLUMES, meta, VOLUME_PROTECTION)
        elif is_leaving(meta, VOLUME_PROTECTION) and not is_bound:
            await remove_finalizer(self._client, PERSISTENT_VOLUMES, meta, VOLUME_PROTECTION)
        return None
