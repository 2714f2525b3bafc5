"""Local ephemeral storage limits: evicts pods that exceed one.

Three limits, checked in the kubelet's order: an emptyDir's `sizeLimit` (memory-backed ones are
limited by their file system), the pod's total of `ephemeral-storage` limits, and each container's
own. A container uses its writable layer, its logs and its termination message files; the pod uses
its containers, its emptyDirs on disk, and the files that all its containers share. The single files
are also bounded by themselves, in every pod: no limit of the pod's author covers them otherwise.
Source: kubelet `eviction_manager.go` `localStorageEviction`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from moorage.api import quantity
from moorage.api.pods import Pod
from moorage.node.failures import log_failure
from moorage.node.garbage.storage import (
    Layers,
    PodStorage,
    StorageMeter,
    empty_dirs_on_disk,
    measure_whole,
)
from moorage.node.metrics import Metrics
from moorage.node.pods.worker import PodWorker
from moorage.node.runtime.observer import Observer
from moorage.node.status.inputs import TerminationReason
from moorage.runtimeclass import pod_limits

FILE_LIMIT = "10Mi"
"""How much a container's termination message files, and one shared file of the pod, may hold."""

_EPHEMERAL_STORAGE = "ephemeral-storage"
_EMPTY_DIR_SIGNAL = "emptydirfs.limit"
_POD_SIGNAL = "ephemeralpodfs.limit"
_CONTAINER_SIGNAL = "ephemeralcontainerfs.limit"
_FILE_SIGNAL = "podfile.limit"
_FILE_LIMIT_BYTES = quantity.parse(FILE_LIMIT).value


@dataclass(frozen=True, slots=True)
class StorageUsage:
    """Bytes on disk of one pod, by the names of its emptyDirs and of its containers.

    `messages` is the part of a container that its termination message files have; `files` are the
    shared files by their paths in the containers.
    """

    empty_dirs: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, int] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """The limit that a pod exceeds: the kubelet's eviction signal and message."""

    signal: str
    message: str


class UsageWatch:
    """Measures the pods with such limits."""

    def __init__(
        self,
        workers: Callable[[], Iterable[PodWorker]],
        meter: StorageMeter,
        observer: Observer,
        metrics: Metrics,
    ) -> None:
        self._workers = workers
        self._meter = meter
        self._observer = observer
        self._metrics = metrics

    async def check(self) -> list[PodWorker]:
        """Measure every pod once, evict those that exceed a limit, and return them.

        A pod that cannot be measured is logged, and measured again in the next pass.
        """
        active = [worker for worker in self._workers() if worker.is_active]
        evicted: list[PodWorker] = []
        layers: Layers = {}
        if any(_limits_ephemeral_storage(worker.pod) for worker in active):
            layers = await self._meter.layers()
        for worker in active:
            with log_failure("measuring ephemeral storage", pod=worker.uid):
                usage = usage_in(await self._measure(worker.pod, layers))
                exceeded = exceeded_limit(worker.pod, usage)
                if exceeded and worker.evict(TerminationReason("Evicted", exceeded.message)):
                    self._metrics.evictions.count(eviction_signal=exceeded.signal)
                    evicted.append(worker)
        self._meter.forget(
            container.id for pod in self._observer.pods for container in pod.containers
        )
        return evicted

    async def _measure(self, pod: Pod, layers: Layers) -> PodStorage:
        """Measure what the pod's limits need. Raises OSError."""
        if _limits_ephemeral_storage(pod):
            return await measure_whole(self._meter, pod, layers)
        files = await self._meter.pod_files(pod.metadata.uid)
        single = await asyncio.to_thread(self._meter.measure_files, pod, files)
        if not any(empty_dirs_on_disk(pod).values()):
            return single
        volumes = await asyncio.to_thread(self._meter.measure_empty_dirs, pod)
        return PodStorage(
            empty_dirs=volumes.empty_dirs, messages=single.messages, files=single.files
        )


def usage_in(storage: PodStorage) -> StorageUsage:
    """Return the bytes that the limits count."""
    names = {*storage.layers, *storage.logs, *storage.messages}
    parts = (storage.layers, storage.logs, storage.messages)
    return StorageUsage(
        empty_dirs={name: use.size_bytes for name, use in storage.empty_dirs.items()},
        containers={
            name: sum(part[name].size_bytes for part in parts if name in part) for name in names
        },
        messages={name: use.size_bytes for name, use in storage.messages.items()},
        files={path: use.size_bytes for path, use in storage.files.items()},
    )


def exceeded_limit(pod: Pod, usage: StorageUsage) -> ExceededLimit | None:
    """Return the first limit the pod exceeds, or None."""
    return (
        _exceeded_empty_dir(pod, usage)
        or _exceeded_pod_limit(pod, usage)
        or _exceeded_container_limit(pod, usage)
        or _exceeded_file_limit(usage)
    )


def _exceeded_empty_dir(pod: Pod, usage: StorageUsage) -> ExceededLimit | None:
    for name, limit in empty_dirs_on_disk(pod).items():
        if limit and usage.empty_dirs[name] > quantity.parse(limit).value:
            message = f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}". '
            return ExceededLimit(_EMPTY_DIR_SIGNAL, message)
    return None


def _exceeded_pod_limit(pod: Pod, usage: StorageUsage) -> ExceededLimit | None:
    limit = pod_limits(pod.spec).get(_EPHEMERAL_STORAGE)
    if limit is None or not limit.value:
        return None
    parts = (usage.empty_dirs, usage.containers, usage.files)
    total = sum(size for part in parts for size in part.values())
    if total <= limit.value:
        return None
    message = f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    return ExceededLimit(_POD_SIGNAL, message)


def _exceeded_container_limit(pod: Pod, usage: StorageUsage) -> ExceededLimit | None:
    for container in pod.spec.containers:
        limit = container.resources.limits.get(_EPHEMERAL_STORAGE, "0")
        allowed = quantity.parse(limit).value
        if allowed and usage.containers.get(container.name, 0) > allowed:
            message = (
                f'Container {container.name} exceeded its local ephemeral storage limit "{limit}". '
            )
            return ExceededLimit(_CONTAINER_SIGNAL, message)
    return None


def _exceeded_file_limit(usage: StorageUsage) -> ExceededLimit | None:
    for name, size in usage.messages.items():
        if size > _FILE_LIMIT_BYTES:
            message = f'Termination log of container {name} exceeds the limit "{FILE_LIMIT}". '
            return ExceededLimit(_FILE_SIGNAL, message)
    for path, size in usage.files.items():
        if size > _FILE_LIMIT_BYTES:
            message = f'Usage of file "{path}" of the pod exceeds the limit "{FILE_LIMIT}". '
            return ExceededLimit(_FILE_SIGNAL, message)
    return None


def _limits_ephemeral_storage(pod: Pod) -> bool:
    limit = pod_limits(pod.spec).get(_EPHEMERAL_STORAGE)
    return limit is not None and limit.value > 0
