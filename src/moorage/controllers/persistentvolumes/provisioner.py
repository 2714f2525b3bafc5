"""Provisioner of local volumes alone, beside another controller of volumes.

kube-controller-manager names the provisioner in an annotation of the claim and binds the volume
that appears; it leaves a released volume to its provisioner. Source: API docs "Dynamic Volume
Provisioning"; sig-storage-lib-external-provisioner (`shouldProvision`, `shouldDelete`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api.claims import class_of_claim
from moorage.api.claims.annotations import (
    BETA_STORAGE_PROVISIONER,
    BOUND_BY_CONTROLLER,
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    YES,
)
from moorage.api.claims.binding import FILESYSTEM, claim_reference
from moorage.api.claims.classes import (
    DRIVER,
    FINALIZER,
    NODE_LABEL,
    PROVISIONER,
    matches_topologies,
    node_problem,
)
from moorage.api.clock import Clock
from moorage.api.errors import AlreadyExistsError, NotFoundError
from moorage.api.nodes import HOSTNAME
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.controllers.informers import CLAIM, Informers, claim_keys
from moorage.controllers.loop import Loop
from moorage.controllers.objects import Node, Pod
from moorage.controllers.persistentvolumes.claim_steps import Announcement
from moorage.controllers.persistentvolumes.volume_steps import is_ours, is_released
from moorage.controllers.persistentvolumes.writes import VolumeWrites
from moorage.controllers.pods import is_ended
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder
from moorage.wire.client.rest import Client

# Provisioning: the volume that Moorage makes for a claim, and why it may make none. Pure.
#
# Source: kube-controller-manager `provisionClaimOperation`; see `api/claims/local_path.py`.

_DELETE = "Delete"


class ProvisioningError(Exception):
    """No volume can be made for a claim; with `may_move` another node may do."""

    def __init__(self, message: str, *, may_move: bool = False) -> None:
        super().__init__(message)
        self.may_move = may_move


def volume_name(claim: PersistentVolumeClaim) -> str:
    """Return the name of the volume that is made for a claim."""
    return f"pvc-{claim.metadata.uid}"


def is_internal(storage_class: StorageClass) -> bool:
    """Return whether Moorage itself provisions the volumes of a class."""
    return storage_class.provisioner == PROVISIONER


def new_volume(
    claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node | None
) -> dict[str, Any]:
    """Return the volume for a claim on the node that was selected for it.

    Raises ProvisioningError with the reason for users.
    """
    selected = claim.metadata.annotations.get(SELECTED_NODE, "")
    if problem := _refusal(claim, storage_class):
        raise ProvisioningError(problem)
    if not selected:
        raise ProvisioningError(
            f"no node was specified: classes of provisioner {PROVISIONER} need "
            "volumeBindingMode WaitForFirstConsumer"
        )
    if node is None:
        raise ProvisioningError(f'node "{selected}" not found', may_move=True)
    labels = node.metadata.labels
    hostname = labels.get(HOSTNAME, "")
    if problem := node_problem(selected, hostname):
        raise ProvisioningError(problem, may_move=True)
    if not matches_topologies(storage_class.allowed_topologies, labels):
        raise ProvisioningError(
            f'node "{selected}" does not match the allowed topologies', may_move=True
        )
    return {
        "metadata": {
            "name": volume_name(claim),
            "labels": {NODE_LABEL: selected},
            "annotations": {PROVISIONED_BY: PROVISIONER, BOUND_BY_CONTROLLER: YES},
            "finalizers": [FINALIZER],
        },
        "spec": {
            "accessModes": list(claim.spec.access_modes),
            "capacity": {"storage": claim.spec.resources.requests["storage"]},
            "claimRef": claim_reference(claim),
            "csi": {"driver": DRIVER, "volumeHandle": claim.metadata.uid},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [
                    {"key": HOSTNAME, "operator": "In", "values": [hostname]}]}]}},
            "persistentVolumeReclaimPolicy": storage_class.reclaim_policy or _DELETE,
            "storageClassName": storage_class.metadata.name,
            "volumeMode": FILESYSTEM,
        },
    }  # fmt: skip


def _refusal(claim: PersistentVolumeClaim, storage_class: StorageClass) -> str:
    """Return the property of the claim or its class that these volumes lack, "" for none."""
    if (claim.spec.volume_mode or FILESYSTEM) != FILESYSTEM:
        return f"{PROVISIONER} does not support block volume provisioning"
    if claim.spec.data_source is not None or claim.spec.data_source_ref is not None:
        return (
            f'plugin "{PROVISIONER}" is not a CSI plugin. Only CSI plugin can provision a claim '
            "with a datasource"
        )
    if claim.spec.selector is not None:
        return "claim.Spec.Selector is not supported for dynamic provisioning"
    if "storage" not in claim.spec.resources.requests:
        return "the claim requests no storage"
    if storage_class.mount_options:
        return (
            "Mount options are not supported by the provisioner but StorageClass "
            f'"{storage_class.metadata.name}" has mount options '
            f"[{' '.join(storage_class.mount_options)}]"
        )
    shared = {"ReadWriteMany", "ReadOnlyMany"} & set(claim.spec.access_modes)
    if shared:
        return f"the volumes of {PROVISIONER} are of one node: {', '.join(sorted(shared))} refused"
    return ""


# Local volumes: those that Moorage itself provisions for claims, and removes with them.
#
# The controller of volumes has them, and the provisioner that stands alone beside another one.
# Source: see `api/claims/local_path.py`.

Key = tuple[str, str]
"""What a loop reconciles: the kind, OF_CLAIM or OF_VOLUME, and the object's key."""
OF_CLAIM, OF_VOLUME = "claim", "volume"


class LocalVolumes:
    """Creates and deletes the volumes. Their directories are made and removed by the nodes."""

    def __init__(self, informers: Informers, writes: VolumeWrites) -> None:
        self._claims = informers.claims
        self._volumes = informers.volumes
        self._pods = informers.pods
        self._nodes = informers.nodes
        self._writes = writes

    def keys_of_claim(
        self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
    ) -> Iterator[Key]:
        """Yield a claim, unless it is gone, and the volumes that name it."""
        claim = latest(before, after)
        key = object_key(claim.metadata)
        if after is not None:
            yield OF_CLAIM, key
        yield from self._volumes_of(key)

    def keys_of_pod(self, before: Pod | None, after: Pod | None) -> Iterator[Key]:
        """Yield the volumes of a pod that has ended: each is deleted once no pod uses its claim."""
        if before is None or not before.spec.volumes:
            return
        if after is None or (is_ended(after) and not is_ended(before)):
            for claim in claim_keys(before):
                yield from self._volumes_of(claim)

    def keys_of_node(self, before: Node | None, after: Node | None) -> Iterator[Key]:
        """Yield the volumes of a node that is gone: their directories are gone with it."""
        if after is None and before is not None:
            for volume in self._volumes:
                if volume.metadata.labels.get(NODE_LABEL) == before.metadata.name:
                    yield OF_VOLUME, volume.metadata.name

    def _volumes_of(self, claim: str) -> Iterator[Key]:
        for volume in self._volumes.by_index(CLAIM, claim):
            yield OF_VOLUME, volume.metadata.name

    async def provision(
        self, claim: PersistentVolumeClaim, storage_class: StorageClass
    ) -> PersistentVolume | None:
        """Create the volume of a claim and return it. Returns None if there is none to bind now.

        What is wrong is announced; a claim that another node may serve loses its node.
        """
        writes = self._writes
        node = self._nodes.get(claim.metadata.annotations.get(SELECTED_NODE, ""))
        try:
            body = new_volume(claim, storage_class, node)
        except ProvisioningError as error:
            name = storage_class.metadata.name
            message = f'Failed to provision volume with StorageClass "{name}": {error}'
            writes.announce_claim(claim, Announcement(WARNING, "ProvisioningFailed", message))
            if error.may_move:
                await writes.unselect_node(claim)
            return None
        try:
            volume = await writes.create_volume(body)
        except AlreadyExistsError:
            return None  # Our copy does not have it yet; its event completes the binding.
        message = (
            f"Successfully provisioned volume {volume.metadata.name} using "
            f"{storage_class.provisioner}"
        )
        writes.announce_claim(claim, Announcement(NORMAL, "ProvisioningSucceeded", message))
        return volume

    async def delete(self, volume: PersistentVolume) -> None:
        """Delete a released volume, once no pod uses it; its node does the rest."""
        meta = volume.metadata
        if volume.spec.persistent_volume_reclaim_policy == _DELETE:
            if self._is_used(volume):
                return
            if meta.deletion_timestamp is None:
                await self._writes.delete_volume(volume)
        if self.is_left_by_its_node(volume):
            await self._writes.let_go(volume)

    def is_left_by_its_node(self, volume: PersistentVolume) -> bool:
        """Return whether a volume that is being deleted waits for a node that does not exist."""
        meta = volume.metadata
        is_leaving = meta.deletion_timestamp is not None and FINALIZER in meta.finalizers
        return is_leaving and self._nodes.get(meta.labels.get(NODE_LABEL, "")) is None

    def _is_used(self, volume: PersistentVolume) -> bool:
        reference = volume.spec.claim_ref
        assert reference is not None
        pods = self._pods.by_index(CLAIM, f"{reference.namespace}/{reference.name}")
        claim = self._claims.get(reference.name, reference.namespace)
        # A new claim of the same name has another volume, and so have the pods that use it now.
        return claim is None and any(not is_ended(pod) for pod in pods)


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
