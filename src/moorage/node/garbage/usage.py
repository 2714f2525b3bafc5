"""Local ephemeral storage limits: evicts pods that exceed one.

Three limits, checked in the kubelet's order: an emptyDir's `sizeLimit` (memory-backed ones are
limited by their file system), the pod's total of `ephemeral-storage` limits, and each container's
own. A container uses its writable layer and its logs; the pod uses its containers and its emptyDirs
on disk. Source: kubelet `eviction_manager.go` `localStorageEviction`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from moorage.api import quantity
from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.cri import CriError
from moorage.linux.trees import disk_use
from moorage.node.failures import log_failure
from moorage.node.metrics import Metrics
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.labels import POD_UID
from moorage.node.pods.worker import PodWorker
from moorage.node.runtime.engine import Engine
from moorage.node.status.inputs import TerminationReason
from moorage.node.volumes.kinds import EMPTY_DIR, PLUGINS
from moorage.runtimeclass import pod_limits

log = Log(__name__)

_EPHEMERAL_STORAGE = "ephemeral-storage"
_EMPTY_DIR_SIGNAL = "emptydirfs.limit"
_POD_SIGNAL = "ephemeralpodfs.limit"
_CONTAINER_SIGNAL = "ephemeralcontainerfs.limit"
_PERIOD_S = 10.0


@dataclass(frozen=True, slots=True)
class StorageUsage:
    """Bytes on disk of one pod, by the names of its emptyDirs and of its containers."""

    empty_dirs: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """The limit that a pod exceeds: the kubelet's eviction signal and message."""

    signal: str
    message: str


class UsageWatch:
    """Measures the pods with such limits. `run()` blocks until cancelled."""

    def __init__(
        self,
        workers: Callable[[], Iterable[PodWorker]],
        engine: Engine,
        paths: NodePaths,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._workers = workers
        self._engine = engine
        self._paths = paths
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(_PERIOD_S)
            await self.check()

    async def check(self) -> None:
        """Measure every pod with a limit once, and evict those that exceed one.

        A pod that cannot be measured is logged, and measured again in the next pass.
        """
        limited = [worker for worker in self._workers() if worker.is_active and _is_limited(worker)]
        layers = await self._writable_layers(limited)
        for worker in limited:
            with log_failure("measuring ephemeral storage", pod=worker.uid):
                usage = await asyncio.to_thread(self._measure, worker.pod, layers)
                exceeded = exceeded_limit(worker.pod, usage)
                if exceeded and worker.evict(TerminationReason("Evicted", exceeded.message)):
                    self._metrics.evictions.count(eviction_signal=exceeded.signal)

    async def _writable_layers(self, workers: Iterable[PodWorker]) -> dict[tuple[str, str], int]:
        """Return writable layer sizes by pod UID and container name, in bytes.

        Empty if no pod limits them, or the engine does not return them.
        """
        if not any(_limits_ephemeral_storage(worker.pod) for worker in workers):
            return {}
        try:
            stats = await self._engine.container_stats()
        except CriError as error:
            log.warning("writable layers not measured", error=error)
            return {}
        return {
            (stat.attributes.labels[POD_UID], stat.attributes.metadata.name): int(
                stat.writable_layer.used_bytes.value
            )
            for stat in stats
        }

    def _measure(self, pod: Pod, layers: Mapping[tuple[str, str], int]) -> StorageUsage:
        """Return the storage usage of a pod. Blocks. Raises OSError."""
        meta = pod.metadata
        place = self._paths.pod(meta.uid)
        empty_dirs = {
            name: disk_use([place.volume(PLUGINS[EMPTY_DIR], name)]).size_bytes
            for name in _empty_dirs_on_disk(pod)
        }
        if not _limits_ephemeral_storage(pod):
            return StorageUsage(empty_dirs)
        logs = self._paths.pod_logs(meta.namespace, meta.name, meta.uid)
        names = [container.name for container in (*pod.spec.init_containers, *pod.spec.containers)]
        containers = {
            name: layers.get((meta.uid, name), 0) + disk_use([logs / name]).size_bytes
            for name in names
        }
        return StorageUsage(empty_dirs, containers)


def exceeded_limit(pod: Pod, usage: StorageUsage) -> ExceededLimit | None:
    """Return the first limit the pod exceeds, or None."""
    return (
        _exceeded_empty_dir(pod, usage)
        or _exceeded_pod_limit(pod, usage)
        or _exceeded_container_limit(pod, usage)
    )


def _exceeded_empty_dir(pod: Pod, usage: StorageUsage) -> ExceededLimit | None:
    for name, limit in _empty_dirs_on_disk(pod).items():
        if limit and usage.empty_dirs[name] > quantity.parse(limit).value:
            message = f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}". '
            return ExceededLimit(_EMPTY_DIR_SIGNAL, message)
    return None


def _exceeded_pod_limit(pod: Pod, usage: StorageUsage) -> ExceededLimit | None:
    limit = pod_limits(pod.spec).get(_EPHEMERAL_STORAGE)
    if limit is None or not limit.value:
        return None
    total = sum(usage.empty_dirs.values()) + sum(usage.containers.values())
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


def _is_limited(worker: PodWorker) -> bool:
    return any(_empty_dirs_on_disk(worker.pod).values()) or _limits_ephemeral_storage(worker.pod)


def _limits_ephemeral_storage(pod: Pod) -> bool:
    limit = pod_limits(pod.spec).get(_EPHEMERAL_STORAGE)
    return limit is not None and limit.value > 0


def _empty_dirs_on_disk(pod: Pod) -> dict[str, str]:
    """Return the size limits of emptyDirs on disk by name; "" without a limit."""
    return {
        volume.name: volume.empty_dir.size_limit or ""
        for volume in pod.spec.volumes
        if volume.empty_dir is not None and not volume.empty_dir.medium
    }
