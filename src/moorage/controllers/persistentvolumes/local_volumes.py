"""Local volumes: those that Moorage itself provisions for claims, and removes with them.

The controller of volumes has them, and the provisioner that stands alone beside another one.
Source: see `api/claims/local_path.py`.
"""

from __future__ import annotations

from moorage.api.claims.annotations import SELECTED_NODE
from moorage.api.claims.local_path import FINALIZER, NODE_LABEL
from moorage.api.errors import AlreadyExistsError
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from moorage.controllers.informers import CLAIM, Informers
from moorage.controllers.persistentvolumes.claim_steps import Announcement
from moorage.controllers.persistentvolumes.provisioning import ProvisioningError, new_volume
from moorage.controllers.persistentvolumes.writes import VolumeWrites
from moorage.controllers.pods import is_ended
from moorage.wire.client.recorder import NORMAL, WARNING

_DELETE = "Delete"


class LocalVolumes:
    """Creates and deletes the volumes. Their directories are made and removed by the nodes."""

    def __init__(self, informers: Informers, writes: VolumeWrites) -> None:
        self._claims = informers.claims
        self._pods = informers.pods
        self._nodes = informers.nodes
        self._writes = writes

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
