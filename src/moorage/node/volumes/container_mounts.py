"""Container mounts: converts `volumeMounts` to CRI mounts, with safe subPaths.

The conversion is pure; only a subPath needs the file system. Source: core/v1 VolumeMount, kubelet
`makeMounts`, KEP-3857 (recursive read-only), KEP-4639 (image volumes).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moorage.api.containers import VolumeMount
from moorage.node.config.environment import expand_strictly
from moorage.node.config.errors import ConfigError
from moorage.node.paths import PodPaths
from moorage.node.pod_facts.labels import AnyContainer
from moorage.node.volumes.kinds import Mounted, MountedVolume
from moorage.node.volumes.mounting import Mounter
from moorage.node.volumes.subpath import bind_subpath, check_subpath
from moorage.wire.cri import pb

_PROPAGATION = {
    None: pb.PROPAGATION_PRIVATE,
    "None": pb.PROPAGATION_PRIVATE,
    "HostToContainer": pb.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": pb.PROPAGATION_BIDIRECTIONAL,
}


def container_mounts(
    container: AnyContainer,
    volumes: Mounted,
    images: Mapping[str, pb.ImageSpec],
    environment: Mapping[str, str],
    paths: PodPaths,
    mounter: Mounter,
    *,
    has_recursive_read_only: bool,
) -> list[pb.Mount]:
    """Return the mounts of one container, in order. `images` are the pulled image volumes, by name.

    Blocks where there are subPaths. Raises ConfigError for an unsupported or invalid mount,
    OSError.
    """
    mounts: list[pb.Mount] = []
    for index, wanted in enumerate(container.volume_mounts):
        volume = volumes.get(wanted.name)
        if volume is None:
            raise ConfigError(
                f'cannot find volume "{wanted.name}" to mount into container "{container.name}"'
            )
        mount = pb.Mount(
            container_path=_absolute(wanted.mount_path),
            readonly=wanted.read_only or volume.is_read_only,
            propagation=_propagation(wanted),
            recursive_read_only=is_recursive(wanted, has_recursive_read_only),
        )
        subpath = _subpath(wanted, environment)
        if volume.path is None:
            mount.image.CopyFrom(images[wanted.name])
            mount.image_sub_path = subpath
        elif subpath:
            target = paths.subpath(volume.name, container.name, index)
            mount.host_path = str(_bound(volume, volume.path, subpath, target, mounter, container))
        else:
            mount.host_path = str(volume.path)
        mounts.append(mount)
    if container.volume_devices:
        raise ConfigError(
            f'container "{container.name}" asks for volumeDevices: raw block volumes are not '
            "supported by this node"
        )
    return mounts


def is_recursive(mount: VolumeMount, is_supported: bool) -> bool:
    """Return whether submounts are read-only as well.

    Raises ConfigError when that is not possible.
    """
    mode = mount.recursive_read_only
    if mode in (None, "Disabled"):
        return False
    refused = f'failed to resolve recursive read-only mode: volume "{mount.name}" requested '
    if not mount.read_only:
        raise ConfigError(f"{refused}recursive read-only mode, but it is not read-only")
    if mount.mount_propagation not in (None, "None"):
        raise ConfigError(
            f"{refused}recursive read-only mode, but it is not compatible with propagation "
            f'"{mount.mount_propagation}"'
        )
    if not is_supported and mode == "Enabled":
        raise ConfigError(
            f"{refused}recursive read-only mode, but it is not supported by the runtime"
        )
    return is_supported


def _propagation(mount: VolumeMount) -> pb.MountPropagation.ValueType:
    if mount.mount_propagation not in _PROPAGATION:
        raise ConfigError(f'invalid MountPropagation mode: "{mount.mount_propagation}"')
    return _PROPAGATION[mount.mount_propagation]


def _subpath(mount: VolumeMount, environment: Mapping[str, str]) -> str:
    subpath = mount.sub_path
    if mount.sub_path_expr:
        try:
            subpath = expand_strictly(mount.sub_path_expr, environment)
        except KeyError as error:
            raise ConfigError(
                f"missing value for {error.args[0]!r} in subPathExpr {mount.sub_path_expr!r}"
            ) from None
    if subpath:
        check_subpath(subpath)
    return subpath


def _bound(
    volume: MountedVolume,
    root: Path,
    subpath: str,
    target: Path,
    mounter: Mounter,
    container: AnyContainer,
) -> Path:
    try:
        bind_subpath(root, check_subpath(subpath), target, mounter)
    except OSError as error:
        raise ConfigError(
            f'failed to prepare subPath for volumeMount "{volume.name}" of container '
            f'"{container.name}": {error.strerror}'
        ) from error
    return target


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"
