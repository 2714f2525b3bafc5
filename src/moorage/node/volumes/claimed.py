"""Claimed volumes: the persistent volumes that the claims of a pod are bound to.

Each claim and its volume are fetched by name, as the node authorizer allows. Source: kubelet
`desired_state_of_world_populator.go`; KEP-1698 (ephemeral volumes).
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.api.claims import PodClaim, is_reachable, pod_claims
from moorage.api.claims.binding import FILESYSTEM
from moorage.api.claims.classes import DRIVER, handle_of
from moorage.api.claims.pod_claims import foreign_claim, source_kind
from moorage.api.errors import StatusError
from moorage.api.persistent_volumes import PersistentVolume, PersistentVolumeClaim
from moorage.api.pods import Pod
from moorage.linux.trees import make_directories, make_directory, remove_tree
from moorage.node.objects import ObjectCache
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.containers import members
from moorage.node.volumes.host_path import HostPathError, check_host_path
from moorage.node.volumes.kinds import CLAIM, MountedVolume, UnprocessedVolumeError, VolumeError
from moorage.node.volumes.mounting import Mounter
from moorage.node.volumes.ownership import give_to_group
from moorage.wire.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from moorage.wire.client.rest import UnreachableError

_BOUND = "Bound"
_BLOCK = "Block"
_PROTECTION = "kubernetes.io/pvc-protection"


@dataclass(frozen=True, slots=True)
class ClaimedVolume:
    """The persistent volume of a pod's volume."""

    volume: PersistentVolume
    is_read_only: bool = False


async def claimed_volumes(
    pod: Pod, objects: ObjectCache, *, max_age_s: float
) -> Mapping[str, ClaimedVolume]:
    """Return the persistent volumes of a pod, by the names of the pod's volumes.

    Raises UnprocessedVolumeError for the first claim that is not bound, or that the pod may not
    use.
    """
    claims = pod_claims(pod.metadata.name, pod.spec.volumes)
    volumes = await asyncio.gather(
        *(_volume_of(pod, claim, objects, max_age_s=max_age_s) for claim in claims)
    )
    return {
        claim.volume: ClaimedVolume(volume, claim.is_read_only)
        for claim, volume in zip(claims, volumes, strict=True)
    }


async def _volume_of(
    pod: Pod, pod_claim: PodClaim, objects: ObjectCache, *, max_age_s: float
) -> PersistentVolume:
    namespace = pod.metadata.namespace
    try:
        claim = await objects.get(
            PERSISTENT_VOLUME_CLAIMS, namespace, pod_claim.name, max_age_s=max_age_s
        )
        problem = _claim_problem(pod_claim, claim)
        if not problem and pod_claim.is_ephemeral and claim is not None:
            foreign = foreign_claim(pod.metadata, claim)
            if foreign:
                raise UnprocessedVolumeError(pod_claim.volume, foreign)
        volume = None
        if not problem and claim is not None:
            name = claim.spec.volume_name
            volume = await objects.get(PERSISTENT_VOLUMES, "", name, max_age_s=max_age_s)
            problem = _volume_problem(name, volume, claim)
    except (StatusError, UnreachableError) as error:
        problem = f"failed to fetch PVC from API server: {error}"
    if problem or volume is None:
        why = f"error processing PVC {namespace}/{pod_claim.name}: {problem}"
        raise UnprocessedVolumeError(pod_claim.volume, why)
    if mode := _mode_problem(pod, pod_claim.volume, volume):
        raise UnprocessedVolumeError(pod_claim.volume, mode)
    return volume


def _claim_problem(pod_claim: PodClaim, claim: PersistentVolumeClaim | None) -> str:
    """Return why a claim cannot be used now, "" if it can."""
    if claim is None:
        return (
            f'failed to fetch PVC from API server: persistentvolumeclaims "{pod_claim.name}" not '
            "found"
        )
    meta = claim.metadata
    # Under protection it goes only after the pods that use it, which may have to be restarted.
    if meta.deletion_timestamp is not None and _PROTECTION not in meta.finalizers:
        return "PVC is being deleted"
    if claim.status.phase != _BOUND:
        return "PVC is not bound"
    return "" if claim.spec.volume_name else "PVC has empty pvc.Spec.VolumeName"


def _volume_problem(
    name: str, volume: PersistentVolume | None, claim: PersistentVolumeClaim
) -> str:
    """Return why the volume of a claim cannot be used, "" if it can."""
    if volume is None:
        return f'failed to fetch PV {name} from API server: persistentvolumes "{name}" not found'
    reference, uid = volume.spec.claim_ref, claim.metadata.uid
    if reference is None:
        return (
            f"found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet "
            "bound to the claim"
        )
    if reference.uid != uid:
        return (
            f"found PV object {name} but its pv.Spec.ClaimRef.UID {reference.uid} does not point "
            f"to claim.UID {uid}"
        )
    return ""


def _mode_problem(pod: Pod, name: str, volume: PersistentVolume) -> str:
    """Return how the pod's containers use a file system or block device wrongly, "" if not."""
    mode = volume.spec.volume_mode or FILESYSTEM
    containers = [member.container for member in members(pod.spec)]
    is_mounted = any(mount.name == name for one in containers for mount in one.volume_mounts)
    is_device = any(device.name == name for one in containers for device in one.volume_devices)
    if is_mounted and mode != FILESYSTEM:
        return f"volume {name} has volumeMode {mode}, but is specified in volumeMounts"
    if is_device and mode != _BLOCK:
        return f"volume {name} has volumeMode {mode}, but is specified in volumeDevices"
    return ""


# Persistent volumes on the node: directories of volumes that Moorage provisioned, and local ones.
#
# Both are bind mounted below the pod's directory, where the other volumes are, so that the mount
# table says which pod uses which. A provisioned volume is known by its handle: its directory is
# derived from that alone. Source: kubelet plugins local-volume and host-path; decision 082.

_PROVISIONED = "local-path"
_LOCAL = "local-volume"
_EXCLUSIVE = "ReadWriteOncePod"
_OPEN_MODE = 0o777
"""Any user of a container may write into a new volume, as into an emptyDir."""


class PersistentMounts:
    """Mounts the persistent volumes of this node's pods. Every call blocks."""

    def __init__(self, mounter: Mounter, paths: NodePaths) -> None:
        self._mounter = mounter
        self._paths = paths
        self._making = threading.Lock()

    def mount(
        self, pod: Pod, name: str, claimed: ClaimedVolume, node_labels: Mapping[str, str]
    ) -> MountedVolume:
        """Mount the volume for a pod, once; return where it is. Raises VolumeError."""
        volume = claimed.volume
        own_name = volume.metadata.name
        if not is_reachable(volume, node_labels):
            why = "no matching NodeSelectorTerms"
            raise VolumeError(own_name, why, step="NodeAffinity check")
        if (volume.spec.volume_mode or FILESYSTEM) != FILESYSTEM:
            why = "raw block volumes (volumeMode Block) are not supported by this node"
            raise VolumeError(own_name, why, step="FindPluginBySpec")
        if volume.spec.access_modes == (_EXCLUSIVE,) and self._is_mounted_elsewhere(pod, volume):
            why = f"volume uses the {_EXCLUSIVE} access mode and is already in use by another pod"
            raise VolumeError(own_name, why)
        try:
            path = self._path(pod, volume, claimed)
        except (HostPathError, OSError, ValueError) as error:
            raise VolumeError(own_name, error) from error
        return MountedVolume(name, CLAIM, path, is_read_only=claimed.is_read_only)

    def is_used(self, handle: str) -> bool:
        """Return whether a provisioned volume is mounted for a pod of this node. Raises OSError."""
        return any(self._places(handle))

    def _is_mounted_elsewhere(self, pod: Pod, volume: PersistentVolume) -> bool:
        """Return whether another pod of this node has the volume, as one that ends still may."""
        own = self._paths.pod(pod.metadata.uid).root
        name = handle_of(volume) or volume.metadata.uid
        return any(not place.is_relative_to(own) for place in self._places(name))

    def _places(self, name: str) -> Iterator[Path]:
        """Yield where a persistent volume is mounted for pods. Raises OSError."""
        kinds = (f"~{_PROVISIONED}", f"~{_LOCAL}")
        for point in self._mounter.mounts_below(self._paths.pods):
            if point.name == name and point.parent.name.endswith(kinds):
                yield point

    def remove(self, handle: str) -> None:
        """Remove the directory of a provisioned volume; absent is no error. Raises OSError."""
        remove_tree(self._paths.unfinished_volume(handle))
        remove_tree(self._paths.local_volume(handle))

    def _path(self, pod: Pod, volume: PersistentVolume, claimed: ClaimedVolume) -> Path:
        paths, spec = self._paths.pod(pod.metadata.uid), volume.spec
        handle = handle_of(volume)
        if handle is not None:
            place = paths.volume(_PROVISIONED, handle)
            if not self._mounter.is_mounted(place):
                is_shared = self.is_used(handle)
                source = self._directory(handle)
                self._bind(pod, source, place, is_given=not is_shared and not claimed.is_read_only)
            return place
        if spec.local is not None:
            place = paths.volume(_LOCAL, volume.metadata.uid)
            if not self._mounter.is_mounted(place):
                source = _local_directory(volume)
                self._bind(pod, source, place, is_given=not claimed.is_read_only)
            return place
        if spec.host_path is not None:
            path = Path(spec.host_path.path)
            check_host_path(path, spec.host_path.type or "")
            return path
        kind = source_kind(spec)
        what = f"csi driver {spec.csi.driver}" if spec.csi is not None else f"kind {kind}"
        raise VolumeError(
            volume.metadata.name,
            f"persistent volumes of {what} are not supported by this node, only hostPath, local, "
            f"and csi driver {DRIVER}",
            step="FindPluginBySpec",
        )

    def _directory(self, handle: str) -> Path:
        """Return the directory of a provisioned volume, made if it is the volume's first use."""
        make_directories(self._paths.local_volumes)
        path = self._paths.local_volume(handle)
        # Two pods may be the first: a rename would replace the other's empty directory.
        with self._making:
            if not os.path.lexists(path):
                # An agent may be killed before the mode is right, and no later one would know.
                unfinished = self._paths.unfinished_volume(handle)
                remove_tree(unfinished)
                make_directory(unfinished, _OPEN_MODE)
                unfinished.rename(path)
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return path

    def _bind(self, pod: Pod, source: Path, place: Path, *, is_given: bool) -> None:
        context = pod.spec.security_context
        if is_given and context is not None and context.fs_group is not None:
            # Before the mount, which says that all has been done.
            give_to_group(
                source,
                context.fs_group,
                is_read_only=False,
                policy=context.fs_group_change_policy,
            )
        make_directories(place)
        self._mounter.bind(str(source), place)


def _local_directory(volume: PersistentVolume) -> Path:
    """Return the directory of a local volume. Raises VolumeError, OSError."""
    assert volume.spec.local is not None
    name, path = volume.metadata.name, Path(volume.spec.local.path)
    if ".." in path.parts or "\0" in str(path) or not path.is_absolute():
        raise VolumeError(name, f"invalid path: {path} must not contain '..'")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        why = f'path "{path}" does not exist'
        raise VolumeError(name, why, step="NewMounter initialization") from None
    if not stat.S_ISDIR(mode):
        raise OSError(
            errno.ENOTDIR, "this node mounts local volumes of directories only", str(path)
        )
    return path
