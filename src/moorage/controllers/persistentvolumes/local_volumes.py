"""Local volumes: those that Moorage itself provisions for claims, and removes with them.

The controller of volumes has them, and the provisioner that stands alone beside another one.
Source: see `api/claims/local_path.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.claims.annotations import SELECTED_NODE
from moorage.api.claims.classes import FINALIZER, NODE_LABEL
from moorage.api.errors import AlreadyExistsError
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.controllers.informers import CLAIM, Informers, claim_keys
from moorage.controllers.loop import latest
from moorage.controllers.objects import Node, Pod
from moorage.controllers.persistentvolumes.claim_steps import Announcement
from moorage.controllers.persistentvolumes.provisioning import ProvisioningError, new_volume
from moorage.controllers.persistentvolumes.writes import VolumeWrites
from moorage.controllers.pods import is_ended
from moorage.wire.client.informer import object_key
from moorage.wire.client.recorder import NORMAL, WARNING

_DELETE = "Delete"

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
