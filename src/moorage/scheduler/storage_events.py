"""Storage events: claims, volumes and classes that change, and the pods that this may help.

A pod that its volumes kept from every node is retried when one of its claims changes, when a volume
is free, or when a class provisions where it did not. Source: queueing hints of kube-scheduler's
VolumeBinding.
"""

from __future__ import annotations

from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.api.pods import Pod
from moorage.scheduler import hints
from moorage.scheduler.filters import VOLUME_FILTERS
from moorage.scheduler.nodes import claim_keys
from moorage.scheduler.queue import SchedulingQueue, Waiting
from moorage.scheduler.volume_binding import VolumeBinder
from moorage.wire.client.informer import object_key


class StorageEvents:
    """Keeps the storage state current, and wakes parked pods and bindings under way."""

    def __init__(self, queue: SchedulingQueue, binder: VolumeBinder) -> None:
        self._storage = binder.storage
        self._queue = queue
        self._binder = binder
        self._claimants: dict[str, set[str]] = {}

    def parked(self, entry: Waiting, rejected_by: frozenset[str]) -> None:
        """Note a parked pod under its claims, if its volumes are among what rejected it."""
        if rejected_by & VOLUME_FILTERS:
            for claim in claim_keys(entry.pod):
                self._claimants.setdefault(claim, set()).add(entry.key)

    def pod_gone(self, key: str, pod: Pod) -> None:
        """Forget a pod, and end the binding of its volumes."""
        for claim in claim_keys(pod) if pod.spec.volumes else ():
            waiting = self._claimants.get(claim, set())
            waiting.discard(key)
            if not waiting:
                self._claimants.pop(claim, None)
            self._binder.notify(claim)

    def on_claim(
        self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
    ) -> None:
        claim = after or before
        assert claim is not None
        key = object_key(claim.metadata)
        if after is None:
            self._storage.remove_claim(key)
        else:
            self._storage.set_claim(after)
            self._wake_claimants(key)
        self._binder.notify(key)

    def on_volume(self, before: PersistentVolume | None, after: PersistentVolume | None) -> None:
        volume = after or before
        assert volume is not None
        name, reference = volume.metadata.name, volume.spec.claim_ref
        if after is None:
            self._storage.remove_volume(name)
        else:
            self._storage.set_volume(after)
            if reference is None:
                self._queue.wake_if(hints.storage_changed())
        self._binder.notify(name)
        if reference is not None:
            claim = f"{reference.namespace}/{reference.name}"
            self._wake_claimants(claim)
            self._binder.notify(claim)

    def on_class(self, before: StorageClass | None, after: StorageClass | None) -> None:
        if after is None:
            assert before is not None
            self._storage.remove_class(before.metadata.name)
            return
        self._storage.set_class(after)
        if before is None or before.allowed_topologies != after.allowed_topologies:
            self._queue.wake_if(hints.storage_changed())

    def _wake_claimants(self, claim: str) -> None:
        for key in self._claimants.pop(claim, ()):
            entry = self._queue.get(key)
            if entry is not None:
                self._queue.wake(entry)
