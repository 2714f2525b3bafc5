"""Local storage of pods, measured: every file on the node's disk that a container may write.

A container has its writable layer, its logs and its termination message files; the pod has its
emptyDirs and the files that are mounted into all its containers: /etc/hosts, which this agent
writes, and what the engine adds itself (/etc/hostname, /etc/resolv.conf). Those the engine names in
a container's verbose status, in the form that containerd and CRI-O share (`runtimeSpec`).
/dev/shm and other tmpfs are memory. Source: kubelet `stats/cri_stats_provider.go`, CVE-2020-8557.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.linux.trees import DiskUse, disk_use
from moorage.node.config.security import HOSTS_PATH
from moorage.node.paths import NodePaths, PodPaths
from moorage.node.pod_facts.containers import members
from moorage.node.pod_facts.labels import POD_UID
from moorage.node.runtime.engine import Engine
from moorage.node.runtime.observer import Observer
from moorage.node.runtime.views import State
from moorage.node.volumes.kinds import EMPTY_DIR, PLUGINS
from moorage.wire.cri import CriError, pb

log = Log(__name__)

_BLOCK_BYTES = 512

Layers = Mapping[tuple[str, str], DiskUse]
"""Writable layers by pod UID and container name."""


@dataclass(frozen=True, slots=True)
class PodFile:
    """A file of the engine's that is mounted into a pod's containers, writable."""

    container_path: str
    host_path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStorage:
    """Disk use of one pod: by emptyDir, by container, and by the path of a shared file."""

    empty_dirs: Mapping[str, DiskUse] = field(default_factory=dict)
    layers: Mapping[str, DiskUse] = field(default_factory=dict)
    logs: Mapping[str, DiskUse] = field(default_factory=dict)
    messages: Mapping[str, DiskUse] = field(default_factory=dict)
    files: Mapping[str, DiskUse] = field(default_factory=dict)


class StorageMeter:
    """Measures the storage of this node's pods."""

    def __init__(self, engine: Engine, observer: Observer, paths: NodePaths) -> None:
        self._engine = engine
        self._observer = observer
        self._paths = paths
        self._files: dict[str, tuple[PodFile, ...]] = {}

    async def layers(self) -> Layers:
        """Return the writable layers of all containers; none if the engine does not report them."""
        try:
            stats = await self._engine.container_stats()
        except CriError as error:
            log.warning("writable layers not measured", error=error)
            return {}
        return layers_in(stats)

    async def pod_files(self, uid: str) -> frozenset[PodFile]:
        """Return the engine's files that the running containers of a pod may write.

        The engine is asked once for each container.
        """
        running = [
            container.id
            for container in self._observer.view(uid).containers
            if container.state is State.RUNNING
        ]
        return frozenset([file for id_ in running for file in await self._files_of(id_)])

    def forget(self, container_ids: Iterable[str]) -> None:
        """Keep the facts of these containers only."""
        self._files = {id_: self._files[id_] for id_ in container_ids if id_ in self._files}

    def measure_files(self, pod: Pod, files: Iterable[PodFile]) -> PodStorage:
        """Measure a pod's single files: message files and shared ones. Blocks. Raises OSError."""
        paths = self._paths.pod(pod.metadata.uid)
        shared = (PodFile(HOSTS_PATH, paths.hosts_file), *files)
        return PodStorage(
            messages=_message_files(pod, paths),
            files={file.container_path: file_use(file.host_path) for file in shared},
        )

    def measure(self, pod: Pod, layers: Layers, files: Iterable[PodFile]) -> PodStorage:
        """Measure all storage of a pod. Blocks. Raises OSError."""
        meta = pod.metadata
        single = self.measure_files(pod, files)
        logs = self._paths.pod_logs(meta.namespace, meta.name, meta.uid)
        names = [member.name for member in members(pod.spec)]
        return PodStorage(
            empty_dirs=self.measure_empty_dirs(pod).empty_dirs,
            layers={name: layers.get((meta.uid, name), DiskUse(0, 0)) for name in names},
            logs={name: disk_use([logs / name]) for name in names},
            messages=single.messages,
            files=single.files,
        )

    def measure_empty_dirs(self, pod: Pod) -> PodStorage:
        """Measure a pod's emptyDirs on disk alone. Blocks. Raises OSError."""
        paths = self._paths.pod(pod.metadata.uid)
        return PodStorage(
            empty_dirs={
                name: disk_use([paths.volume(PLUGINS[EMPTY_DIR], name)])
                for name in empty_dirs_on_disk(pod)
            }
        )

    async def _files_of(self, container_id: str) -> tuple[PodFile, ...]:
        known = self._files.get(container_id)
        if known is not None:
            return known
        try:
            reply = await self._engine.verbose_container_status(container_id)
        except CriError as error:
            log.warning("container's files not known", container=container_id, error=error)
            return ()
        files = engine_files(reply)
        self._files[container_id] = files
        return files


def empty_dirs_on_disk(pod: Pod) -> dict[str, str]:
    """Return the size limits of emptyDirs on disk by name; "" without a limit."""
    return {
        volume.name: volume.empty_dir.size_limit or ""
        for volume in pod.spec.volumes
        if volume.empty_dir is not None and not volume.empty_dir.medium
    }


def layers_in(stats: Iterable[pb.ContainerStats]) -> Layers:
    """Return the writable layers in an engine's statistics."""
    return {
        (item.attributes.labels[POD_UID], item.attributes.metadata.name): DiskUse(
            int(item.writable_layer.used_bytes.value), int(item.writable_layer.inodes_used.value)
        )
        for item in stats
    }


def engine_files(reply: pb.ContainerStatusResponse) -> tuple[PodFile, ...]:
    """Return the writable bind mounts that the engine has added to those it was asked for.

    Empty for an engine that does not report them.
    """
    requested = {
        # A leading `//` is distinct in POSIX, not in Linux.
        posixpath.normpath("/" + mount.container_path.lstrip("/"))
        for mount in reply.status.mounts
    }
    return tuple(
        PodFile(mount["destination"], Path(mount["source"]))
        for mount in _runtime_mounts(reply.info)
        if _is_writable_bind(mount) and mount["destination"] not in requested
    )


def _runtime_mounts(info: Mapping[str, str]) -> list[dict[str, Any]]:
    try:
        details = msgspec.json.decode(info.get("info", "{}"))
        mounts = details["runtimeSpec"]["mounts"]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return []
    return [mount for mount in mounts if _is_mount(mount)] if isinstance(mounts, list) else []


def _is_mount(mount: Any) -> bool:
    return isinstance(mount, dict) and isinstance(mount.get("options") or [], list)


def _is_writable_bind(mount: Mapping[str, Any]) -> bool:
    options = mount.get("options") or ()
    is_bind = mount.get("type") == "bind" or "bind" in options or "rbind" in options
    paths = (mount.get("source"), mount.get("destination"))
    return is_bind and "ro" not in options and all(isinstance(path, str) for path in paths)


def file_use(path: Path) -> DiskUse:
    """Return the disk use of a regular file; nothing for any other or none. Raises OSError."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return DiskUse(0, 0)
    if not stat.S_ISREG(status.st_mode):
        return DiskUse(0, 0)
    return DiskUse(status.st_blocks * _BLOCK_BYTES, 1)


def _message_files(pod: Pod, paths: PodPaths) -> dict[str, DiskUse]:
    return {member.name: _files_in(paths.container(member.name)) for member in members(pod.spec)}


def _files_in(directory: Path) -> DiskUse:
    """Return the disk use of the files of a directory, without its own."""
    try:
        uses = [file_use(path) for path in directory.iterdir()]
    except FileNotFoundError:
        return DiskUse(0, 0)
    return DiskUse(sum(use.size_bytes for use in uses), len(uses))


async def measure_whole(meter: StorageMeter, pod: Pod, layers: Layers) -> PodStorage:
    """Measure all storage of a pod, in a thread. Raises OSError."""
    files = await meter.pod_files(pod.metadata.uid)
    return await asyncio.to_thread(meter.measure, pod, layers, files)
