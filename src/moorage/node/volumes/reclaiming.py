"""Reclaiming of provisioned volumes: their directories are removed once they are released.

The volume controller deletes the volume's object, which stays until this node has removed the
directory and lets go of the object. What a pod has planted in a volume (links, deep trees,
immutable files) leads nowhere: see `linux.trees`. Source: decision 082.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum

from moorage.api.claims.classes import DRIVER, FINALIZER, NODE_LABEL, handle_of
from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.api.logs import Log
from moorage.api.persistent_volumes import PersistentVolume
from moorage.node.volumes.claimed import PersistentMounts
from moorage.wire.client.informer import Informer
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.recorder import WARNING, EventRecorder, reference
from moorage.wire.client.resources import PERSISTENT_VOLUMES
from moorage.wire.client.rest import Client

log = Log(__name__)

_DELETE = "Delete"
_RELEASED = ("Released", "Failed")
_IN_USE_RETRY_S = 1.0


class Fate(Enum):
    """What becomes of a volume's directory and of its object's finalizer."""

    KEEP = "keep"
    REMOVE = "remove the directory, then let go of the object"
    LET_GO = "let go of the object; the directory stays"


def fate_of(volume: PersistentVolume, others: Iterable[PersistentVolume]) -> Fate:
    """Return the next action for a volume of this node. `others` are the node's other volumes.

    The directory stays under every reclaim policy but Delete, and while another volume has the same
    handle. Raises ValueError for a handle that names no directory.
    """
    meta, spec = volume.metadata, volume.spec
    if meta.deletion_timestamp is None or FINALIZER not in meta.finalizers:
        return Fate.KEEP
    if spec.claim_ref is not None and volume.status.phase not in _RELEASED:
        return Fate.KEEP
    handle = handle_of(volume)
    if spec.persistent_volume_reclaim_policy != _DELETE or handle is None:
        return Fate.LET_GO
    is_shared = any(_has_handle(other, handle) for other in others)
    return Fate.LET_GO if is_shared else Fate.REMOVE


def _has_handle(volume: PersistentVolume, handle: str) -> bool:
    # Whatever else their sources say: the directory is that of the handle alone.
    source = volume.spec.csi
    return source is not None and source.driver == DRIVER and source.volume_handle == handle


class VolumeReclaimer:
    """Removes the directories of released volumes. `run()` blocks until cancelled."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        mounts: PersistentMounts,
        clock: Clock,
        *,
        node_name: str,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._mounts = mounts
        self._volumes = Informer(
            client, PERSISTENT_VOLUMES, label_selector=f"{NODE_LABEL}={node_name}", clock=clock
        )
        self._queue: WorkQueue[str] = WorkQueue("volumes to reclaim", clock=clock)
        self._volumes.add_handler(self._changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._volumes.run())
            await self._volumes.wait_synced()
            tasks.create_task(self._queue.run(self._reconcile))

    def _changed(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        del before
        if after is not None:
            self._queue.add(after.metadata.name)

    async def _reconcile(self, name: str) -> float | None:
        volume = self._volumes.get(name)
        if volume is None:
            return None
        others = [other for other in self._volumes if other.metadata.name != name]
        try:
            fate = fate_of(volume, others)
            handle = handle_of(volume)
        except ValueError as error:
            # Nothing of this node can be meant, so nothing is left to wait for.
            self._warn(volume, f"{error}; nothing was removed")
            await self._let_go(volume)
            return None
        if fate is Fate.KEEP:
            return None
        if fate is Fate.REMOVE and handle is not None:
            try:
                if await asyncio.to_thread(self._mounts.is_used, handle):
                    return _IN_USE_RETRY_S
                await asyncio.to_thread(self._mounts.remove, handle)
            except OSError as error:
                self._warn(volume, error)
                self._queue.retry(name)
                return None
            log.info("volume removed", volume=name, handle=handle)
        await self._let_go(volume)
        return None

    async def _let_go(self, volume: PersistentVolume) -> None:
        meta = volume.metadata
        kept = [finalizer for finalizer in meta.finalizers if finalizer != FINALIZER]
        preconditions = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": {**preconditions, "finalizers": kept}}
        try:
            await self._client.patch(PERSISTENT_VOLUMES, meta.name, patch)
        except NotFoundError:
            return  # It is gone.

    def _warn(self, volume: PersistentVolume, why: object) -> None:
        about = reference(PERSISTENT_VOLUMES, volume)
        log.warning("volume not removed", volume=volume.metadata.name, error=why)
        self._recorder.record(about, WARNING, "VolumeFailedDelete", str(why))
