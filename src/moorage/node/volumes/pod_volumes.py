"""Pod volumes: mounted before the containers start, refreshed, and removed.

A volume that cannot be mounted blocks the pod, with an error that names the volume and its kind.
Mounting is idempotent, so a restarted agent just calls `mount`. Source: kubelet volume manager and
its empty-dir, configmap, secret, projected, host-path plugins.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from moorage.api import quantity
from moorage.api.clock import Clock
from moorage.api.configuration import ConfigMap, Secret
from moorage.api.errors import StatusError
from moorage.api.pods import Pod
from moorage.api.volumes import Volume
from moorage.linux.trees import make_directories, remove_tree
from moorage.node.config.downward import DownwardInputs
from moorage.node.config.errors import ConfigError
from moorage.node.objects import ObjectCache
from moorage.node.paths import NodePaths, PodPaths
from moorage.node.volumes.atomic import PayloadError, write_payload
from moorage.node.volumes.claimed import ClaimedVolume, PersistentMounts, claimed_volumes
from moorage.node.volumes.host_path import HostPathError, check_host_path
from moorage.node.volumes.kinds import (
    CLAIMED,
    EMPTY_DIR,
    FILLED,
    HOST_PATH,
    IMAGE,
    MOUNTED,
    PLUGINS,
    Mounted,
    MountedVolume,
    VolumeError,
    kind_of,
)
from moorage.node.volumes.mounting import Mounter, ObjectMemory, PodMemory
from moorage.node.volumes.ownership import give_to_group
from moorage.node.volumes.payload import VolumeNeeds, VolumeSources, needs_of, payload_of
from moorage.node.volumes.tokens import PodTokens
from moorage.wire.client.resources import CONFIG_MAPS, SECRETS
from moorage.wire.client.rest import UnreachableError

_FRESH_S = 1.0
_FETCHED_AT_ONCE = 16
_MEMORY = "Memory"
_EMPTY_DIR_MODE = 0o777
_FILLED_DIR_MODE = 0o755

K = TypeVar("K")
V = TypeVar("V")


class VolumeKeeper:
    """Mounts, refreshes and removes the volumes of this node's pods."""

    def __init__(
        self,
        *,
        objects: ObjectCache,
        tokens: PodTokens,
        mounter: Mounter,
        paths: NodePaths,
        clock: Clock,
        refresh_s: float,
        node_labels: Callable[[], Mapping[str, str]],
    ) -> None:
        self._objects = objects
        self._tokens = tokens
        self._mounter = mounter
        self._paths = paths
        self._clock = clock
        self._refresh_s = refresh_s
        self._node_labels = node_labels
        self._persistent = PersistentMounts(mounter, paths)

    async def mount(self, pod: Pod, where: DownwardInputs) -> Mounted:
        """Mount every volume of the pod. Raises VolumeError for the first that fails."""
        for volume in pod.spec.volumes:
            kind = kind_of(volume)
            if kind not in MOUNTED:
                raise VolumeError(
                    volume.name,
                    f"volumes of kind {kind} are not supported by this node, only "
                    f"{', '.join(sorted(MOUNTED))}",
                    step="FindPluginBySpec",
                )
        claimed = await claimed_volumes(pod, self._objects, max_age_s=_FRESH_S)
        sources = await self._sources(pod, max_age_s=_FRESH_S)
        mounted = await asyncio.to_thread(self._mount_all, pod, sources, where, claimed)
        return {volume.name: volume for volume in mounted}

    async def refresh(self, pod: Pod, where: DownwardInputs) -> None:
        """Update the files of a running pod. Raises VolumeError."""
        filled = [volume for volume in pod.spec.volumes if kind_of(volume) in FILLED]
        if filled:
            sources = await self._sources(pod, max_age_s=self._refresh_s / 2)
            await asyncio.to_thread(self._fill_all, pod, filled, sources, where)

    def refresh_due_s(self, pod: Pod) -> float | None:
        """Return seconds until the pod's next refresh; None when its files never change."""
        if not any(kind_of(volume) in FILLED for volume in pod.spec.volumes):
            return None
        renewal_s = self._tokens.renewal_s(pod)
        if renewal_s is None:
            return self._refresh_s
        return max(1.0, min(self._refresh_s, renewal_s - self._clock.now().timestamp()))

    async def remove(self, uid: str) -> None:
        """Unmount and delete all volumes of a terminated pod, and its directory. Raises OSError."""
        self._tokens.forget(uid)
        await asyncio.to_thread(self._remove, self._paths.pod(uid))

    async def _sources(self, pod: Pod, *, max_age_s: float) -> VolumeSources:
        needs = VolumeNeeds()
        blamed: dict[str, str] = {}
        for volume in pod.spec.volumes:
            own = needs_of(volume)
            needs |= own
            for name in own.config_maps | own.secrets:
                blamed[name] = volume.name
        first = next((volume.name for volume in pod.spec.volumes if needs_of(volume).tokens), "")
        namespace = pod.metadata.namespace
        culprit = next(iter(blamed.values()), first)
        memory = ObjectMemory()
        try:
            config_maps, secrets, tokens = await asyncio.gather(
                _gathered(
                    needs.config_maps,
                    lambda name: self._objects.get(
                        CONFIG_MAPS, namespace, name, max_age_s=max_age_s
                    ),
                    lambda obj: memory.add(_values_of(obj)),
                ),
                _gathered(
                    needs.secrets,
                    lambda name: self._objects.get(SECRETS, namespace, name, max_age_s=max_age_s),
                    lambda obj: memory.add(_values_of(obj)),
                ),
                _gathered(
                    needs.tokens,
                    lambda wanted: self._tokens.get(pod, wanted),
                    lambda token: memory.add([token]),
                ),
            )
        except (StatusError, UnreachableError, ConfigError) as error:
            raise VolumeError(culprit, error) from error
        return VolumeSources(config_maps=config_maps, secrets=secrets, tokens=tokens)

    def _mount_all(
        self,
        pod: Pod,
        sources: VolumeSources,
        where: DownwardInputs,
        claimed: Mapping[str, ClaimedVolume],
    ) -> list[MountedVolume]:
        memory, labels = PodMemory(), self._node_labels()
        return [
            self._persistent.mount(pod, volume.name, claimed[volume.name], labels)
            if kind_of(volume) in CLAIMED
            else self._mount_one(pod, volume, sources, where, memory)
            for volume in pod.spec.volumes
        ]

    def _mount_one(
        self,
        pod: Pod,
        volume: Volume,
        sources: VolumeSources,
        where: DownwardInputs,
        memory: PodMemory,
    ) -> MountedVolume:
        kind = kind_of(volume)
        try:
            if kind == HOST_PATH:
                return self._host_path(volume)
            if kind == IMAGE:
                return MountedVolume(volume.name, kind, None, is_read_only=True)
            place = self._paths.pod(pod.metadata.uid).volume(PLUGINS[kind], volume.name)
            if kind == EMPTY_DIR:
                self._empty_dir(pod, volume, place, where, memory)
                return MountedVolume(volume.name, kind, place)
            self._filled(pod, volume, place, sources, where, memory)
            return MountedVolume(volume.name, kind, place, is_read_only=True)
        except (ConfigError, PayloadError, HostPathError, OSError) as error:
            raise VolumeError(volume.name, error) from error

    def _fill_all(
        self,
        pod: Pod,
        volumes: Iterable[Volume],
        sources: VolumeSources,
        where: DownwardInputs,
    ) -> None:
        """Refresh every volume; raises the first VolumeError after all have been tried."""
        failures: list[VolumeError] = []
        memory = PodMemory()
        for volume in volumes:
            try:
                self._mount_one(pod, volume, sources, where, memory)
            except VolumeError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _host_path(self, volume: Volume) -> MountedVolume:
        assert volume.host_path is not None
        path = Path(volume.host_path.path)
        check_host_path(path, volume.host_path.type or "")
        return MountedVolume(volume.name, HOST_PATH, path)

    def _empty_dir(
        self, pod: Pod, volume: Volume, place: Path, where: DownwardInputs, memory: PodMemory
    ) -> None:
        source = volume.empty_dir
        medium = source.medium if source is not None else ""
        if medium not in ("", _MEMORY):
            raise ConfigError(f'emptyDir medium "{medium}" is not supported by this node')
        if medium == _MEMORY:
            memory.add_volume()
        ready = self._paths.pod(pod.metadata.uid).ready_file(PLUGINS[EMPTY_DIR], volume.name)
        if ready.exists() and self._has_place(place, in_memory=medium == _MEMORY):
            return
        self._directory(place, _EMPTY_DIR_MODE, in_memory=medium == _MEMORY,
                        size_bytes=_memory_size(pod, volume, where))  # fmt: skip
        _give(pod, place, is_read_only=False)
        # Last: an agent that was killed before this does it all again.
        make_directories(ready.parent)
        ready.touch(0o600)

    def _has_place(self, place: Path, *, in_memory: bool) -> bool:
        return self._mounter.is_mounted(place) if in_memory else place.is_dir()

    def _filled(
        self,
        pod: Pod,
        volume: Volume,
        place: Path,
        sources: VolumeSources,
        where: DownwardInputs,
        memory: PodMemory,
    ) -> None:
        # Computed first: a volume with missing sources, or over a limit, must not leave a
        # directory.
        payload = payload_of(pod, volume, sources, where)
        memory.add_volume()
        memory.add_files(len(file.content) for file in payload.values())
        in_memory = kind_of(volume) != "configMap"
        self._directory(place, _FILLED_DIR_MODE, in_memory=in_memory, size_bytes=0)
        write_payload(
            place,
            payload,
            self._clock.now(),
            finish=lambda fresh: _give(pod, fresh, is_read_only=True),
        )

    def _directory(self, place: Path, mode: int, *, in_memory: bool, size_bytes: int) -> None:
        """Create the directory, on its own tmpfs if requested, or complete an existing one."""
        make_directories(place)
        if in_memory and not self._mounter.is_mounted(place):
            is_filled = mode == _FILLED_DIR_MODE
            self._mounter.mount_tmpfs(place, size_bytes, has_programs=not is_filled)
        place.chmod(mode)

    def _remove(self, pod: PodPaths) -> None:
        if not pod.root.exists():
            return
        self._mounter.isolate_below(pod.root)
        for point in self._mounter.mounts_below(pod.root):
            self._mounter.unmount(point)
        # remove_tree skips mounts, such as a host path or an image, but would delete the rest.
        if left := next(self._mounter.mounts_below(pod.root), None):
            raise OSError(errno.EBUSY, "still mounted, so the pod's files are kept", str(left))
        remove_tree(pod.root)


async def _gathered(
    keys: Collection[K],
    fetch: Callable[[K], Coroutine[Any, Any, V]],
    count: Callable[[V], None],
) -> dict[K, V]:
    """Fetch in small batches, so that `count` can refuse the rest before it is in memory."""
    ordered, objects = list(keys), {}
    for start in range(0, len(ordered), _FETCHED_AT_ONCE):
        batch = ordered[start : start + _FETCHED_AT_ONCE]
        for key, value in zip(batch, await asyncio.gather(*map(fetch, batch)), strict=True):
            count(value)
            objects[key] = value
    return objects


def _values_of(obj: ConfigMap | Secret | None) -> Iterable[str]:
    if obj is None:
        return ()
    more = obj.binary_data.values() if isinstance(obj, ConfigMap) else ()
    return (*obj.data.values(), *more)


def _memory_size(pod: Pod, volume: Volume, where: DownwardInputs) -> int:
    """Return a memory-backed emptyDir's size limit: the least of its own, the pod's, the node's."""
    limits = [where.allocatable.get("memory", "0")]
    if volume.empty_dir is not None and volume.empty_dir.size_limit:
        limits.append(volume.empty_dir.size_limit)
    of_containers = [container.resources.limits.get("memory") for container in pod.spec.containers]
    if of_containers and all(of_containers):
        total = quantity.add_resources(*({"memory": limit or "0"} for limit in of_containers))
        limits.append(str(total["memory"]))
    sizes = [quantity.parse(limit).value for limit in limits]
    return min((size for size in sizes if size > 0), default=0)


def _give(pod: Pod, place: Path, *, is_read_only: bool) -> None:
    context = pod.spec.security_context
    if context is not None and context.fs_group is not None:
        give_to_group(
            place,
            context.fs_group,
            is_read_only=is_read_only,
            policy=context.fs_group_change_policy,
        )
