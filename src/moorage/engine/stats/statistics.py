"""Statistics and metrics of containers and sandboxes, for the CRI's responses.

One thread reads a list in one go: about 0.25 ms a container on the hot path `containers`. Sizes of
writable layers are requested before, some at a time; after a deadline the last known one counts.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.engine.background import Background
from moorage.engine.cgroups.usage import Usage
from moorage.engine.stats.messages import container_stats, sandbox_stats
from moorage.engine.stats.metrics import ALL_ROWS, CONTAINER_ROWS, POD_ROWS, descriptors, metrics
from moorage.engine.stats.samples import Sample, Sampler
from moorage.engine.stats.subjects import ContainerSubject, LayerUsage, SandboxSubject
from moorage.linux.cgroups import Cgroups
from moorage.linux.network_devices import NetworkDevice, read_network_devices
from moorage.wire.cri import pb

log = Log(__name__)

_LAYERS_AT_ONCE = 4
_LAYER_DEADLINE_S = 5.0
_LAYERS_KEPT = 256

Start = Callable[[Coroutine[Any, Any, None]], None]
Layers = Mapping[str, LayerUsage]
"""Usage of writable layers by container."""
Counts = Mapping[str, Usage]
"""Usage by container, as their runtimes count it."""
Devices = Mapping[Path, tuple[NetworkDevice, ...]]
"""Devices of network namespaces."""


class _Measurement:
    """The measurement of one layer: its last result, None before or when it failed."""

    def __init__(self) -> None:
        self.usage: LayerUsage | None = None
        self.ended = asyncio.Event()
        self.ended.set()


class Statistics:
    """Measures on one host and keeps the last readings for rates. Safe for concurrent use."""

    def __init__(
        self,
        cgroups: Cgroups,
        clock: Clock,
        start: Start | None = None,
        layer_deadline_s: float = _LAYER_DEADLINE_S,
    ) -> None:
        """`start` runs the measurements of layers, which may outlast a request."""
        self._layer_deadline_s = layer_deadline_s
        self._sampler = Sampler(cgroups, clock)
        self._rates = CpuRates()
        self._start = start or Background().start
        self._layers_known: dict[str, _Measurement] = {}
        self._layers_at_once = asyncio.Semaphore(_LAYERS_AT_ONCE)

    async def container(self, subject: ContainerSubject) -> pb.ContainerStats:
        """Return a container's statistics; no figures without its cgroup."""
        (stats,) = await self.containers((subject,))
        return stats

    async def containers(self, subjects: Sequence[ContainerSubject]) -> list[pb.ContainerStats]:
        """Return the statistics of several containers, in their order."""
        layers, counts = await self._ask(subjects)
        return await asyncio.to_thread(self._containers, subjects, layers, counts)

    async def sandbox(self, subject: SandboxSubject) -> pb.PodSandboxStats:
        """Return a sandbox's statistics, with those of its containers."""
        (stats,) = await self.sandboxes((subject,))
        return stats

    async def sandboxes(self, subjects: Sequence[SandboxSubject]) -> list[pb.PodSandboxStats]:
        """Return the statistics of several sandboxes, in their order."""
        layers, counts = await self._ask(_containers_of(subjects))
        return await asyncio.to_thread(self._sandboxes, subjects, layers, counts)

    async def metrics(self, subjects: Sequence[SandboxSubject]) -> list[pb.PodSandboxMetrics]:
        """Return the metrics of several sandboxes and their containers, in their order."""
        layers, counts = await self._ask(_containers_of(subjects))
        return await asyncio.to_thread(self._metrics, subjects, layers, counts)

    def descriptors(self) -> list[pb.MetricDescriptor]:
        """Return the descriptors of `metrics`."""
        return descriptors(ALL_ROWS)

    async def _ask(self, subjects: Sequence[ContainerSubject]) -> tuple[Layers, Counts]:
        """Return slow statistics: sizes of layers, and counts of runtimes."""
        layers, counts = await asyncio.gather(self._layers(subjects), _counts(subjects))
        return layers, counts

    async def _layers(self, subjects: Sequence[ContainerSubject]) -> Layers:
        self._forget_layers({subject.id for subject in subjects})
        async with asyncio.TaskGroup() as group:
            tasks = {subject.id: group.create_task(self._layer(subject)) for subject in subjects}
        usages = {id_: task.result() for id_, task in tasks.items()}
        return {id_: usage for id_, usage in usages.items() if usage is not None}

    async def _layer(self, subject: ContainerSubject) -> LayerUsage | None:
        """Return a layer's usage: as measured now, or after a deadline by the last measurement.

        One that takes longer goes on: a writer of a million files must not stay unmeasured.
        """
        known = self._layers_known.setdefault(subject.id, _Measurement())
        if known.ended.is_set():
            known.ended.clear()
            self._start(self._measure(subject, known))
        try:
            async with asyncio.timeout(self._layer_deadline_s):
                await known.ended.wait()
        except TimeoutError:
            log.debug("writable layer takes long to measure", container=subject.id)
        return known.usage

    async def _measure(self, subject: ContainerSubject, known: _Measurement) -> None:
        try:
            # Some at a time: one slow disk must not delay all others.
            async with self._layers_at_once:
                known.usage = await subject.writable_usage()
        except OSError as error:
            known.usage = None
            log.debug("writable layer not measured", container=subject.id, reason=error)
        finally:
            known.ended.set()

    def _forget_layers(self, present: Collection[str]) -> None:
        """Drop measurements of other containers, once there are many."""
        if len(self._layers_known) > 2 * len(present) + _LAYERS_KEPT:
            self._layers_known = {
                id_: known
                for id_, known in self._layers_known.items()
                if id_ in present or not known.ended.is_set()
            }

    def _containers(
        self, subjects: Sequence[ContainerSubject], layers: Layers, counts: Counts
    ) -> list[pb.ContainerStats]:
        samples = self._samples(subjects, counts)
        return [
            self._container(subject, sample, layers)
            for subject, sample in zip(subjects, samples, strict=True)
        ]

    def _samples(self, subjects: Sequence[ContainerSubject], counts: Counts) -> list[Sample]:
        return [
            self._sampler.container_sample(subject, counts.get(subject.id)) for subject in subjects
        ]

    def _container(
        self, subject: ContainerSubject, sample: Sample, layers: Layers
    ) -> pb.ContainerStats:
        rate = self._rate(subject.id, sample)
        return container_stats(subject, sample, rate, layers.get(subject.id))

    def _sandboxes(
        self, subjects: Sequence[SandboxSubject], layers: Layers, counts: Counts
    ) -> list[pb.PodSandboxStats]:
        networks = _networks(subjects)
        return [self._sandbox(subject, layers, counts, networks) for subject in subjects]

    def _sandbox(
        self, subject: SandboxSubject, layers: Layers, counts: Counts, networks: Devices
    ) -> pb.PodSandboxStats:
        samples = self._samples(subject.containers, counts)
        if subject.cgroup is None:
            whole = self._sampler.total(samples)
        else:
            whole = self._sampler.pod_sample(subject.cgroup, subject.guest)
        return sandbox_stats(
            subject,
            whole,
            self._rate(subject.id, whole),
            devices=_devices(subject, networks),
            containers=[
                self._container(container, sample, layers)
                for container, sample in zip(subject.containers, samples, strict=True)
            ],
        )

    def _metrics(
        self, subjects: Sequence[SandboxSubject], layers: Layers, counts: Counts
    ) -> list[pb.PodSandboxMetrics]:
        networks = _networks(subjects)
        return [self._pod_metrics(subject, layers, counts, networks) for subject in subjects]

    def _pod_metrics(
        self, pod: SandboxSubject, layers: Layers, counts: Counts, networks: Devices
    ) -> pb.PodSandboxMetrics:
        names = (pod.metadata.namespace, pod.metadata.name)
        whole = self._sampler.pod(pod.cgroup, _devices(pod, networks), pod.guest)
        return pb.PodSandboxMetrics(
            pod_sandbox_id=pod.id,
            metrics=metrics(POD_ROWS, whole, ("", pod.cgroup or "", "", pod.id, *names)),
            container_metrics=[
                pb.ContainerMetrics(
                    container_id=container.id,
                    metrics=metrics(
                        CONTAINER_ROWS,
                        self._sampler.container(
                            container, layers.get(container.id), counts.get(container.id)
                        ),
                        (
                            container.metadata.name,
                            container.cgroup,
                            container.image,
                            container.id,
                            *names,
                        ),
                    ),
                )
                for container in pod.containers
            ],
        )

    def _rate(self, id_: str, sample: Sample) -> int | None:
        if sample.usage.cpu_ns is None:
            return None
        return self._rates.rate(id_, sample.ticked_ns, sample.usage.cpu_ns)


def _containers_of(pods: Sequence[SandboxSubject]) -> list[ContainerSubject]:
    return [container for pod in pods for container in pod.containers]


async def _counts(subjects: Sequence[ContainerSubject]) -> Counts:
    """Return the runtimes' counts of containers. All are asked at once, by their deadlines."""
    async with asyncio.TaskGroup() as group:
        tasks = {
            subject.id: group.create_task(_own_usage(subject.own_usage))
            for subject in subjects
            if subject.own_usage is not None
        }
    usages = {id_: task.result() for id_, task in tasks.items()}
    return {id_: usage for id_, usage in usages.items() if usage is not None}


async def _own_usage(ask: Callable[[], Awaitable[Usage | None]]) -> Usage | None:
    return await ask()


def _networks(subjects: Sequence[SandboxSubject]) -> Devices:
    return read_network_devices(
        [subject.netns for subject in subjects if subject.netns is not None]
    )


def _devices(subject: SandboxSubject, networks: Devices) -> tuple[NetworkDevice, ...]:
    return () if subject.netns is None else networks.get(subject.netns, ())


# CPU rate: nanoseconds of CPU time per second, from two readings of a cgroup.
#
# Two readings of each id are kept, so that a client that asks twice in a row does not spoil the
# rate of one that asks every ten seconds. The least recently read ids are evicted.

_NS_PER_S = 1_000_000_000
_LEAST_WINDOW_NS = _NS_PER_S
_MOST_KEPT = 4096

Reading = tuple[int, int]
"""Time on a monotonic clock, and CPU time until then; both in nanoseconds."""


class CpuRates:
    """The last readings of each id. Thread-safe."""

    def __init__(self, most_kept: int = _MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._kept: OrderedDict[str, tuple[Reading | None, Reading]] = OrderedDict()
        self._lock = threading.Lock()

    def rate(self, id_: str, at_ns: int, used_ns: int) -> int | None:
        """Return the nanoseconds of CPU time per second until now; None at the first reading.

        Averaged over at least a second if there is a reading that old, else since the first one.
        """
        with self._lock:
            older, newer = self._kept.pop(id_, (None, None))
            if newer is None or used_ns < newer[1]:
                # A counter that restarts belongs to another cgroup of the same name.
                self._keep(id_, None, (at_ns, used_ns))
                return None
            if at_ns - newer[0] >= _LEAST_WINDOW_NS:
                self._keep(id_, newer, (at_ns, used_ns))
                base = newer
            else:
                self._keep(id_, older, newer)
                base = older or newer
        elapsed_ns = at_ns - base[0]
        return (used_ns - base[1]) * _NS_PER_S // elapsed_ns if elapsed_ns > 0 else None

    def _keep(self, id_: str, older: Reading | None, newer: Reading) -> None:
        self._kept[id_] = (older, newer)
        while len(self._kept) > self._most_kept:
            self._kept.popitem(last=False)
