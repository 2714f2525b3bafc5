"""Eviction under node pressure: looks, frees what the node can, and evicts one pod.

Each look first ends the pods that exceed limits of their own. Then the most urgent threshold that
is due has dead containers and unused images removed, if it is about disk; when that is not enough,
one pod is evicted, and nothing else happens until it has ended. What to do is decided in
`moorage.node.pressure`. Source: kubelet `eviction_manager.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.api.clock import Clock, sleep_unless_done
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.linux.cgroups import guests_outside
from moorage.linux.trees import DiskUse
from moorage.node.cgroups.tree import pod_usage, process_count
from moorage.node.cgroups.values import pod_directory
from moorage.node.failures import log_failure
from moorage.node.garbage.containers import ContainerCollector
from moorage.node.garbage.images import ImageCollector
from moorage.node.garbage.storage import PodStorage, StorageMeter, measure_whole
from moorage.node.garbage.usage import UsageWatch
from moorage.node.machine.pressure import Gauges, NodePressure
from moorage.node.metrics import Metrics
from moorage.node.pod_facts.grace import EVICTION_GRACE_S
from moorage.node.pod_facts.labels import POD_UID
from moorage.node.pod_facts.sources import format_pod
from moorage.node.pods.worker import PodWorker
from moorage.node.pressure import thresholds as signals
from moorage.node.pressure.ranking import ContainerUse, PodUse, ranked
from moorage.node.pressure.thresholds import (
    DISK,
    INODES,
    SIGNALS,
    EvictionOptions,
    Observations,
    Threshold,
    met,
    thresholds_of,
)
from moorage.node.pressure.tracking import PressureState, eviction_message, track
from moorage.node.runtime.engine import Engine
from moorage.node.status.inputs import TerminationReason
from moorage.wire.cri import CriError

log = Log(__name__)

_CLEANUP_S = 30.0

ReportThreshold = Callable[[str], None]
"""Called with the resource that is about to be reclaimed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureSources:
    """The readings of one look, and the means to free resources."""

    gauges: Gauges
    engine: Engine
    meter: StorageMeter
    limits: UsageWatch
    containers: ContainerCollector
    images: ImageCollector


class PressureKeeper:
    """Keeps this node from running out. `run()` blocks until cancelled.

    Raises ThresholdError for options that are no thresholds.
    """

    def __init__(
        self,
        *,
        options: EvictionOptions,
        sources: PressureSources,
        pressure: NodePressure,
        workers: Callable[[], Iterable[PodWorker]],
        report: ReportThreshold,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._options = options
        self._thresholds = thresholds_of(options)
        self._sources = sources
        self._pressure = pressure
        self._workers = workers
        self._report = report
        self._metrics = metrics
        self._clock = clock
        self._state = PressureState()
        self._image_disk: Path | None = None

    async def run(self) -> None:
        while True:
            evicted: Sequence[PodWorker] = ()
            with log_failure("looking for node pressure"):
                evicted = await self.check()
            if evicted:
                await sleep_unless_done(self._clock, _CLEANUP_S, _all_over(evicted))
            else:
                await self._clock.sleep(self._options.period_s)

    async def look(self) -> Observations:
        """Measure the supply, and set the node's conditions. Raises OSError."""
        observations = await self._observe()
        self._state = track(
            self._state,
            self._thresholds,
            observations,
            self._clock.monotonic(),
            self._options.transition_s,
        )
        self._pressure.update(self._state.conditions)
        return observations

    async def check(self) -> list[PodWorker]:
        """Look once, and return the pods that are evicted now. Raises OSError."""
        observations = await self.look()
        due = self._state.due
        evicted = await self._sources.limits.check()
        if evicted or not due:
            return evicted
        threshold = due[0]
        resource = SIGNALS[threshold.signal].resource
        log.warning("eviction threshold met", signal=threshold.signal, resource=resource)
        self._report(resource)
        if await self._reclaim(threshold):
            log.info("resource reclaimed without eviction", resource=resource)
            return []
        worker = await self._evict_one(threshold, observations)
        return [] if worker is None else [worker]

    async def _observe(self) -> Observations:
        try:
            self._image_disk = await self._sources.images.place()
        except CriError as error:
            log.warning("images' file system not known", error=error)
        return await asyncio.to_thread(self._sources.gauges.read, self._image_disk)

    async def _reclaim(self, threshold: Threshold) -> bool:
        """Free disk on the node itself; return whether no threshold is met any more.

        With a file system of their own, images and dead containers are on the images'.
        """
        if SIGNALS[threshold.signal].resource not in (DISK, INODES):
            return False
        if threshold.signal.startswith("nodefs.") and await self._has_image_disk():
            return False
        await self._sources.containers.collect_all()
        with log_failure("removing unused images"):
            await self._sources.images.remove_unused()
        return not met(self._thresholds, await self._observe(), with_reclaim=True)

    async def _has_image_disk(self) -> bool:
        return await asyncio.to_thread(self._sources.gauges.has_image_disk, self._image_disk)

    async def _evict_one(
        self, threshold: Threshold, observations: Observations
    ) -> PodWorker | None:
        """Evict the first pod that can be; None if there is none. Raises OSError."""
        resource = SIGNALS[threshold.signal].resource
        workers = {worker.uid: worker for worker in self._workers() if worker.is_live}
        uses = await self._uses([worker.pod for worker in workers.values()], resource)
        order = ranked(
            [worker.pod for worker in workers.values()],
            uses,
            threshold.signal,
            has_image_disk=await self._has_image_disk(),
        )
        for pod in order:
            message, annotations = eviction_message(
                pod, resource, uses.get(pod.metadata.uid), self._state.due, observations
            )
            worker = workers[pod.metadata.uid]
            if worker.evict(
                TerminationReason("Evicted", message, is_disruption=True),
                grace_s=EVICTION_GRACE_S if threshold.is_hard else self._options.max_pod_grace_s,
                annotations=annotations,
            ):
                self._metrics.evictions.count(eviction_signal=threshold.signal)
                log.warning("pod evicted", pod=format_pod(pod), signal=threshold.signal)
                return worker
        log.warning("no pod can be evicted", resource=resource)
        return None

    async def _uses(self, pods: Sequence[Pod], resource: str) -> dict[str, PodUse]:
        """Return the pods' usage of a resource, without those that cannot be measured."""
        match resource:
            case signals.MEMORY:
                return await self._memory_uses(pods)
            case signals.PIDS:
                return await asyncio.to_thread(self._process_uses, pods)
            case _:
                return await self._disk_uses(pods)

    async def _memory_uses(self, pods: Sequence[Pod]) -> dict[str, PodUse]:
        containers: dict[str, dict[str, ContainerUse]] = {}
        try:
            for stats in await self._sources.engine.container_stats():
                uid = stats.attributes.labels[POD_UID]
                name, memory = stats.attributes.metadata.name, stats.memory
                if memory.HasField("working_set_bytes"):
                    use = ContainerUse(memory_bytes=int(memory.working_set_bytes.value))
                    containers.setdefault(uid, {})[name] = use
        except CriError as error:
            log.warning("containers' memory not measured", error=error)
        sandboxes = await self._guests()
        return await asyncio.to_thread(self._pod_memory, pods, containers, sandboxes)

    async def _guests(self) -> dict[str, list[str]]:
        """Return the sandboxes by pod UID that have a virtual machine outside the pod's cgroup."""
        outside = await asyncio.to_thread(guests_outside, self._sources.gauges.tree.cgroups)
        if not outside:
            return {}
        guests: dict[str, list[str]] = {}
        try:
            for stats in await self._sources.engine.sandbox_stats():
                if stats.attributes.id in outside:
                    uid = stats.attributes.metadata.uid
                    guests.setdefault(uid, []).append(stats.attributes.id)
        except CriError as error:
            log.warning("virtual machines not measured", error=error)
        return guests

    def _pod_memory(
        self,
        pods: Sequence[Pod],
        containers: dict[str, dict[str, ContainerUse]],
        guests: dict[str, list[str]],
    ) -> dict[str, PodUse]:
        tree = self._sources.gauges.tree
        uses: dict[str, PodUse] = {}
        for pod in pods:
            uid = pod.metadata.uid
            path = tree.path(pod_directory(pod))
            usage = pod_usage(tree.cgroups, path, guests.get(uid, ()))
            if usage is not None:
                uses[uid] = PodUse(
                    memory_bytes=usage.working_set_bytes, containers=containers.get(uid, {})
                )
        return uses

    def _process_uses(self, pods: Sequence[Pod]) -> dict[str, PodUse]:
        tree = self._sources.gauges.tree
        counts = {
            pod.metadata.uid: process_count(tree.cgroups, tree.path(pod_directory(pod)))
            for pod in pods
        }
        return {uid: PodUse(processes=count) for uid, count in counts.items() if count is not None}

    async def _disk_uses(self, pods: Sequence[Pod]) -> dict[str, PodUse]:
        meter = self._sources.meter
        layers = await meter.layers()
        uses: dict[str, PodUse] = {}
        for pod in pods:
            with log_failure("measuring a pod's storage", pod=format_pod(pod)):
                uses[pod.metadata.uid] = disk_use_of(await measure_whole(meter, pod, layers))
        return uses


def disk_use_of(storage: PodStorage) -> PodUse:
    """Return a pod's storage by file system and by container."""
    local = (storage.empty_dirs, storage.logs, storage.messages, storage.files)
    names = storage.layers.keys() | storage.logs.keys()
    nothing = DiskUse(0, 0)
    return PodUse(
        layers=_sum(storage.layers.values()),
        local=_sum(use for part in local for use in part.values()),
        containers={
            name: ContainerUse(
                disk=_sum((storage.layers.get(name, nothing), storage.logs.get(name, nothing)))
            )
            for name in names
        },
    )


def _sum(uses: Iterable[DiskUse]) -> DiskUse:
    size_bytes, inodes = 0, 0
    for use in uses:
        size_bytes += use.size_bytes
        inodes += use.inodes
    return DiskUse(size_bytes, inodes)


async def _all_over(workers: Iterable[PodWorker]) -> None:
    for worker in workers:
        await worker.wait_over()
