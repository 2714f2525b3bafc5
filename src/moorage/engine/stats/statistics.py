"""Statistics and metrics of containers and sandboxes, for the CRI's responses.

One thread reads a list in one go: about 0.25 ms a container on the hot path `containers`. Sizes of
writable layers are requested before, some at a time, and left out after a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.cri import pb
from moorage.engine.stats.messages import container_stats, sandbox_stats
from moorage.engine.stats.metrics import (
    ALL_ROWS,
    CONTAINER_ROWS,
    POD_ROWS,
    descriptors,
    metrics,
)
from moorage.engine.stats.rates import CpuRates
from moorage.engine.stats.samples import Sample, Sampler
from moorage.engine.stats.subjects import ContainerSubject, LayerUsage, SandboxSubject
from moorage.linux.cgroups import Cgroups
from moorage.linux.network_devices import NetworkDevice, read_network_devices

log = Log(__name__)

_LAYERS_AT_ONCE = 4
_LAYER_DEADLINE_S = 5.0

Layers = Mapping[str, LayerUsage]
"""Usage of writable layers by container."""
Devices = Mapping[Path, tuple[NetworkDevice, ...]]
"""Devices of network namespaces."""


class Statistics:
    """Measures on one host and keeps the last readings for rates. Safe for concurrent use."""

    def __init__(self, cgroups: Cgroups, clock: Clock) -> None:
        self._sampler = Sampler(cgroups, clock)
        self._rates = CpuRates()
        self._layers_at_once = asyncio.Semaphore(_LAYERS_AT_ONCE)

    async def container(self, subject: ContainerSubject) -> pb.ContainerStats:
        """Return a container's statistics; no figures without its cgroup."""
        (stats,) = await self.containers((subject,))
        return stats

    async def containers(self, subjects: Sequence[ContainerSubject]) -> list[pb.ContainerStats]:
        """Return the statistics of several containers, in their order."""
        layers = await self._layers(subjects)
        return await asyncio.to_thread(self._containers, subjects, layers)

    async def sandbox(self, subject: SandboxSubject) -> pb.PodSandboxStats:
        """Return a sandbox's statistics, with those of its containers."""
        (stats,) = await self.sandboxes((subject,))
        return stats

    async def sandboxes(self, subjects: Sequence[SandboxSubject]) -> list[pb.PodSandboxStats]:
        """Return the statistics of several sandboxes, in their order."""
        layers = await self._layers([container for pod in subjects for container in pod.containers])
        return await asyncio.to_thread(self._sandboxes, subjects, layers)

    async def metrics(self, subjects: Sequence[SandboxSubject]) -> list[pb.PodSandboxMetrics]:
        """Return the metrics of several sandboxes and their containers, in their order."""
        layers = await self._layers([container for pod in subjects for container in pod.containers])
        return await asyncio.to_thread(self._metrics, subjects, layers)

    def descriptors(self) -> list[pb.MetricDescriptor]:
        """Return the descriptors of `metrics`."""
        return descriptors(ALL_ROWS)

    async def _layers(self, subjects: Sequence[ContainerSubject]) -> Layers:
        async with asyncio.TaskGroup() as group:
            tasks = {subject.id: group.create_task(self._layer(subject)) for subject in subjects}
        usages = {id_: task.result() for id_, task in tasks.items()}
        return {id_: usage for id_, usage in usages.items() if usage is not None}

    async def _layer(self, subject: ContainerSubject) -> LayerUsage | None:
        try:
            # Waiting for a slot counts too: one slow disk must not delay the whole list.
            async with asyncio.timeout(_LAYER_DEADLINE_S), self._layers_at_once:
                return await subject.writable_usage()
        except (OSError, TimeoutError) as error:
            log.debug("writable layer not measured", container=subject.id, reason=error)
            return None

    def _containers(
        self, subjects: Sequence[ContainerSubject], layers: Layers
    ) -> list[pb.ContainerStats]:
        return [
            self._container(subject, self._sampler.container_sample(subject), layers)
            for subject in subjects
        ]

    def _container(
        self, subject: ContainerSubject, sample: Sample, layers: Layers
    ) -> pb.ContainerStats:
        rate = self._rate(subject.id, sample)
        return container_stats(subject, sample, rate, layers.get(subject.id))

    def _sandboxes(
        self, subjects: Sequence[SandboxSubject], layers: Layers
    ) -> list[pb.PodSandboxStats]:
        networks = _networks(subjects)
        return [self._sandbox(subject, layers, networks) for subject in subjects]

    def _sandbox(
        self, subject: SandboxSubject, layers: Layers, networks: Devices
    ) -> pb.PodSandboxStats:
        samples = [self._sampler.container_sample(container) for container in subject.containers]
        if subject.cgroup is None:
            whole = self._sampler.total(samples)
        else:
            whole = self._sampler.sample(subject.cgroup)
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
        self, subjects: Sequence[SandboxSubject], layers: Layers
    ) -> list[pb.PodSandboxMetrics]:
        networks = _networks(subjects)
        return [self._pod_metrics(subject, layers, networks) for subject in subjects]

    def _pod_metrics(
        self, pod: SandboxSubject, layers: Layers, networks: Devices
    ) -> pb.PodSandboxMetrics:
        names = (pod.metadata.namespace, pod.metadata.name)
        whole = self._sampler.pod(pod.cgroup, _devices(pod, networks))
        return pb.PodSandboxMetrics(
            pod_sandbox_id=pod.id,
            metrics=metrics(POD_ROWS, whole, ("", pod.cgroup or "", "", pod.id, *names)),
            container_metrics=[
                pb.ContainerMetrics(
                    container_id=container.id,
                    metrics=metrics(
                        CONTAINER_ROWS,
                        self._sampler.container(container, layers.get(container.id)),
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


def _networks(subjects: Sequence[SandboxSubject]) -> Devices:
    return read_network_devices(
        [subject.netns for subject in subjects if subject.netns is not None]
    )


def _devices(subject: SandboxSubject, networks: Devices) -> tuple[NetworkDevice, ...]:
    return () if subject.netns is None else networks.get(subject.netns, ())
