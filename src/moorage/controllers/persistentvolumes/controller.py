"""PersistentVolume controller: binds volumes and claims, provisions volumes, reclaims them.

Claims and volumes are keys of one queue with one worker, so that no volume is given to two claims
at once. Each step is decided from the present state and written with the revision that was read;
what is interrupted between two writes is completed by the next step. Source: the controller
`persistentvolume` of kube-controller-manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moorage.api.claims import class_of_claim, class_of_volume
from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.controllers.informers import CLAIM, STORAGE_CLASS, Informers
from moorage.controllers.loop import Loop
from moorage.controllers.persistentvolumes.claim_steps import LOST as CLAIM_LOST
from moorage.controllers.persistentvolumes.claim_steps import (
    PENDING,
    Announcement,
    AssignClass,
    Bind,
    Lose,
    Provision,
    Storage,
    Wait,
    claim_step,
)
from moorage.controllers.persistentvolumes.provisioner import (
    OF_CLAIM,
    OF_VOLUME,
    Key,
    LocalVolumes,
    is_internal,
)
from moorage.controllers.persistentvolumes.volume_steps import (
    FAILED,
    RELEASED,
    Reclaim,
    ReportMismatch,
    SetPhase,
    SyncClaim,
    Unbind,
    is_ours,
    is_released,
    reclaim_problem,
    volume_step,
)
from moorage.controllers.persistentvolumes.writes import VolumeWrites
from moorage.controllers.pods import is_ended
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS
from moorage.wire.client.rest import Client

_IN_TREE = "kubernetes.io/"


class PersistentVolumeController:
    """Watches claims, volumes, classes, and the pods and nodes that they depend on."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._claims = informers.claims
        self._volumes = informers.volumes
        self._classes = informers.storage_classes
        self._pods = informers.pods
        self._writes = VolumeWrites(client, recorder, clock)
        self._local = LocalVolumes(informers, self._writes)
        self._storage = Storage(
            volume=self._volumes.get,
            volumes=lambda: self._volumes,
            storage_class=self._classes.get,
            storage_classes=lambda: self._classes,
            waiting_pods=self._waiting_pods,
        )
        self._loop: Loop[Key] = Loop(
            "persistent volumes",
            self._reconcile,
            [
                (self._claims, self._local.keys_of_claim),
                (self._volumes, self._volume_changed),
                (self._classes, self._class_changed),
                (self._pods, self._local.keys_of_pod),
                (informers.nodes, self._local.keys_of_node),
            ],
            clock,
        )
        self.run = self._loop.run

    def _volume_changed(
        self, before: PersistentVolume | None, after: PersistentVolume | None
    ) -> Iterator[Key]:
        volume = latest(before, after)
        yield OF_VOLUME, volume.metadata.name
        reference = volume.spec.claim_ref
        if reference is not None:
            yield OF_CLAIM, f"{reference.namespace}/{reference.name}"
        else:
            yield from self._pending_claims(class_of_volume(volume))
            for claim in self._claims if after is None else ():
                if claim.spec.volume_name == volume.metadata.name:
                    yield OF_CLAIM, object_key(claim.metadata)

    def _class_changed(
        self, before: StorageClass | None, after: StorageClass | None
    ) -> Iterator[Key]:
        storage_class = latest(before, after)
        yield from self._pending_claims(storage_class.metadata.name)
        # It may be the default class now.
        yield from self._pending_claims("")

    def _pending_claims(self, class_name: str) -> Iterator[Key]:
        for claim in self._claims.by_index(STORAGE_CLASS, class_name):
            if claim.status.phase in ("", PENDING):
                yield OF_CLAIM, object_key(claim.metadata)

    def _waiting_pods(self, claim: PersistentVolumeClaim) -> Iterable[str]:
        pods = self._pods.by_index(CLAIM, object_key(claim.metadata))
        return [pod.metadata.name for pod in pods if not pod.spec.node_name and not is_ended(pod)]

    async def _reconcile(self, key: Key) -> float | None:
        kind, name = key
        try:
            return await (self._sync_claim(name) if kind == OF_CLAIM else self._sync_volume(name))
        except NotFoundError:
            return None  # It is gone.

    async def _sync_claim(self, key: str) -> float | None:
        claim = self._claims.get_key(key)
        if claim is None:
            return None
        writes = self._writes
        try:
            step = claim_step(claim, self._storage)
        except ValueError as error:
            step = Wait(Announcement(WARNING, "FailedBinding", f"invalid selector: {error}"))
        match step:
            case Bind(volume):
                await writes.bind(claim, volume)
            case AssignClass(name):
                await writes.assign_class(claim, name)
            case Provision(storage_class):
                await self._provision(claim, storage_class)
            case Lose(event):
                if claim.status.phase != CLAIM_LOST:
                    writes.announce_claim(await writes.set_claim_phase(claim, CLAIM_LOST), event)
            case Wait(event, again_s):
                if event is not None:
                    writes.announce_claim(claim, event)
                await writes.set_claim_phase(claim, PENDING)
                return again_s
        return None

    async def _provision(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass | None
    ) -> None:
        writes = self._writes
        if storage_class is None:
            name = class_of_claim(claim)
            self._not_provisioned(claim, f'storageclass.storage.k8s.io "{name}" not found')
            await writes.set_claim_phase(claim, PENDING)
            return
        provisioner = storage_class.provisioner
        if provisioner.startswith(_IN_TREE):
            self._not_provisioned(claim, f"no volume plugin matched name: {provisioner}")
            await writes.set_claim_phase(claim, PENDING)
            return
        claim = await writes.name_provisioner(claim, provisioner)
        claim = await writes.set_claim_phase(claim, PENDING)
        if not is_internal(storage_class):
            message = (
                "Waiting for a volume to be created either by the external provisioner "
                f"'{provisioner}' or manually by the system administrator. If volume creation is "
                "delayed, please verify that the provisioner is running and correctly registered."
            )
            writes.announce_claim(claim, Announcement(NORMAL, "ExternalProvisioning", message))
            return
        volume = await self._local.provision(claim, storage_class)
        if volume is not None:
            await writes.bind(claim, volume)

    def _not_provisioned(self, claim: PersistentVolumeClaim, why: str) -> None:
        self._writes.announce_claim(claim, Announcement(WARNING, "ProvisioningFailed", why))

    async def _sync_volume(self, name: str) -> float | None:
        volume = self._volumes.get(name)
        if volume is None:
            return None
        claim = await self._claim_of(volume)
        writes = self._writes
        if claim is None and self._local.is_left_by_its_node(volume):
            await writes.let_go(volume)
            return None
        match volume_step(volume, claim):
            case SetPhase(phase):
                await writes.set_volume_phase(volume, phase)
            case SyncClaim():
                assert claim is not None
                self._loop.add((OF_CLAIM, object_key(claim.metadata)))
            case ReportMismatch(about_volume, about_claim):
                assert claim is not None
                writes.announce_volume(volume, about_volume)
                writes.announce_claim(claim, about_claim)
            case Unbind():
                await writes.unbind(volume)
            case Reclaim():
                if not is_released(volume):
                    volume = await writes.set_volume_phase(volume, RELEASED)
                await self._reclaim(volume)
        return None

    async def _claim_of(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """Return the claim that a volume names by uid; a claim not in our copy is asked for."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            return None
        claim = self._claims.get(reference.name, reference.namespace)
        if claim is not None and claim.metadata.uid == reference.uid:
            return claim
        if claim is None and is_released(volume):
            return None
        try:
            claim = await self._client.get(
                PERSISTENT_VOLUME_CLAIMS, reference.name, reference.namespace
            )
        except NotFoundError:
            return None
        return claim if claim.metadata.uid == reference.uid else None

    async def _reclaim(self, volume: PersistentVolume) -> None:
        problem = reclaim_problem(volume)
        if problem is not None:
            if volume.status.phase != FAILED:
                volume = await self._writes.set_volume_phase(volume, FAILED, problem.message)
                self._writes.announce_volume(volume, problem)
            return
        if is_ours(volume):
            await self._local.delete(volume)
