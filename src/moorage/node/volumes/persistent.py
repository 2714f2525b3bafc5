"""Persistent volumes on the node: directories of volumes that Moorage provisioned, and local ones.

Both are bind mounted below the pod's directory, where the other volumes are, so that the mount
table says which pod uses which. A provisioned volume is known by its handle: its directory is
derived from that alone. Source: kubelet plugins local-volume and host-path; decision 082.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from moorage.api.claims import is_reachable
from moorage.api.claims.local_path import DRIVER, handle_of
from moorage.api.claims.matching import FILESYSTEM
from moorage.api.claims.sources import source_kind
from moorage.api.persistent_volumes import PersistentVolume
from moorage.api.pods import Pod
from moorage.linux.trees import make_directories, make_directory, remove_tree
from moorage.node.paths import NodePaths
from moorage.node.volumes.claimed import ClaimedVolume
from moorage.node.volumes.host_path import HostPathError, check_host_path
from moorage.node.volumes.kinds import CLAIM
from moorage.node.volumes.mounted import MountedVolume, VolumeError
from moorage.node.volumes.mounting import Mounter
from moorage.node.volumes.ownership import give_to_group

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
