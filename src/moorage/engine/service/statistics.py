"""Statistics RPCs of the CRI: ContainerStats, PodSandboxStats, their lists, and metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from functools import partial

from moorage.api.logs import Log
from moorage.engine.cgroups import Usage
from moorage.engine.context import EngineContext
from moorage.engine.errors import EngineError, NotFoundError
from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.inventory import Container, Sandbox
from moorage.engine.stats import (
    ContainerSubject,
    SandboxSubject,
    SharedCgroup,
    Statistics,
    select_containers,
    select_sandboxes,
)
from moorage.linux import pinned
from moorage.linux.cgroups import outside_cgroup
from moorage.wire.cri import pb

log = Log(__name__)

_MOST_KNOWN = 1024


class StatisticsServicer:
    """Statistics and metrics of running containers and ready sandboxes."""

    def __init__(self, context: EngineContext, statistics: Statistics) -> None:
        self._context = context
        self._statistics = statistics
        self._uncounted: set[str] = set()

    async def container_stats(self, request: pb.ContainerStatsRequest) -> pb.ContainerStatsResponse:
        container = self._context.inventory.containers.find(request.container_id)
        return pb.ContainerStatsResponse(
            stats=await self._statistics.container(self._container(container))
        )

    async def list_container_stats(
        self, request: pb.ListContainerStatsRequest
    ) -> pb.ListContainerStatsResponse:
        return pb.ListContainerStatsResponse(stats=await self._container_list(request.filter))

    async def stream_container_stats(
        self, request: pb.StreamContainerStatsRequest
    ) -> AsyncIterator[pb.StreamContainerStatsResponse]:
        for stats in await self._container_list(request.filter):
            yield pb.StreamContainerStatsResponse(container_stats=[stats])

    async def pod_sandbox_stats(
        self, request: pb.PodSandboxStatsRequest
    ) -> pb.PodSandboxStatsResponse:
        sandbox = self._context.inventory.sandboxes.find(request.pod_sandbox_id)
        return pb.PodSandboxStatsResponse(
            stats=await self._statistics.sandbox(self._sandbox(sandbox))
        )

    async def list_pod_sandbox_stats(
        self, request: pb.ListPodSandboxStatsRequest
    ) -> pb.ListPodSandboxStatsResponse:
        return pb.ListPodSandboxStatsResponse(stats=await self._sandbox_list(request.filter))

    async def stream_pod_sandbox_stats(
        self, request: pb.StreamPodSandboxStatsRequest
    ) -> AsyncIterator[pb.StreamPodSandboxStatsResponse]:
        for stats in await self._sandbox_list(request.filter):
            yield pb.StreamPodSandboxStatsResponse(pod_sandbox_stats=[stats])

    async def list_metric_descriptors(
        self, request: pb.ListMetricDescriptorsRequest
    ) -> pb.ListMetricDescriptorsResponse:
        del request
        return pb.ListMetricDescriptorsResponse(descriptors=self._statistics.descriptors())

    async def list_pod_sandbox_metrics(
        self, request: pb.ListPodSandboxMetricsRequest
    ) -> pb.ListPodSandboxMetricsResponse:
        del request
        return pb.ListPodSandboxMetricsResponse(
            pod_metrics=await self._statistics.metrics(self._ready_sandboxes())
        )

    async def stream_pod_sandbox_metrics(
        self, request: pb.StreamPodSandboxMetricsRequest
    ) -> AsyncIterator[pb.StreamPodSandboxMetricsResponse]:
        del request
        for metrics in await self._statistics.metrics(self._ready_sandboxes()):
            yield pb.StreamPodSandboxMetricsResponse(pod_sandbox_metrics=[metrics])

    async def _container_list(
        self, stats_filter: pb.ContainerStatsFilter
    ) -> list[pb.ContainerStats]:
        running = [
            self._container(container)
            for container in self._context.inventory.containers
            if container.is_running
        ]
        return await self._statistics.containers(select_containers(running, stats_filter))

    async def _sandbox_list(
        self, stats_filter: pb.PodSandboxStatsFilter
    ) -> list[pb.PodSandboxStats]:
        return await self._statistics.sandboxes(
            select_sandboxes(self._ready_sandboxes(), stats_filter)
        )

    def _ready_sandboxes(self) -> list[SandboxSubject]:
        return [
            self._sandbox(sandbox)
            for sandbox in self._context.inventory.sandboxes
            if sandbox.record.is_ready
        ]

    def _container(self, container: Container) -> ContainerSubject:
        record, config = container.record, container.config
        return ContainerSubject(
            id=record.id,
            sandbox_id=record.sandbox_id,
            metadata=config.metadata,
            cgroup=container.cgroup.path,
            layers=self._context.paths.images,
            writable_usage=partial(self._writable_usage, record.id),
            labels=config.labels,
            annotations=config.annotations,
            image=config.image.image,
            started_at_ns=record.started_at_ns,
            limits=config.linux.resources,
            shared=self._shared(container.sandbox),
            own_usage=self._asking(container),
        )

    def _shared(self, sandbox: Sandbox) -> SharedCgroup | None:
        """Return the cgroup of a pod whose containers may run under a kernel of the pod's own."""
        if not self._context.adapter(sandbox).needs_sandbox:
            return None
        cgroup = sandbox.cgroup
        running = sum(
            container.is_running for container in self._context.inventory.containers_of(sandbox)
        )
        path = cgroup.path if cgroup.is_parent_shared else cgroup.parent
        return SharedCgroup(path, max(running, 1), self._guest(sandbox))

    def _asking(self, container: Container) -> Callable[[], Awaitable[Usage | None]] | None:
        """Return the call that asks the runtime, None where cgroups of the host have everything."""
        if not self._context.adapter(container.sandbox).needs_sandbox:
            return None
        return partial(self._own_usage, container)

    async def _own_usage(self, container: Container) -> Usage | None:
        """Return the runtime's counts of a container; None, logged once, where it fails."""
        try:
            adapter = self._context.adapter(container.sandbox)
            usage = await adapter.usage(container.task(self._context.paths))
        except (AdapterError, EngineError) as error:
            if container.id not in self._uncounted and container.is_running:
                if len(self._uncounted) >= _MOST_KNOWN:
                    self._uncounted.clear()
                self._uncounted.add(container.id)
                log.warning(
                    "the runtime does not say what a container uses: its share of the pod counts",
                    pod=container.sandbox.pod, container=container.id, reason=error,
                )  # fmt: skip
            return None
        return None if usage is None else Usage(**asdict(usage))

    def _guest(self, sandbox: Sandbox) -> str | None:
        """Return the cgroup that a pod's virtual machine has if it is outside the pod's."""
        return outside_cgroup(sandbox.id) if sandbox.may_have_guest else None

    async def _writable_usage(self, container_id: str) -> tuple[int, int]:
        try:
            return await self._context.images.writable_usage(container_id)
        except NotFoundError as error:
            raise FileNotFoundError(str(error)) from error

    def _sandbox(self, sandbox: Sandbox) -> SandboxSubject:
        config, record = sandbox.config, sandbox.record
        cgroup = sandbox.cgroup
        netns = self._context.paths.namespaces / record.id / pinned.NET
        containers = self._context.inventory.containers_of(sandbox)
        return SandboxSubject(
            id=record.id,
            metadata=config.metadata,
            cgroup=None if cgroup.is_parent_shared else cgroup.parent,
            netns=None if sandbox.is_on_host_network else netns,
            guest=self._guest(sandbox),
            containers=tuple(
                self._container(container) for container in containers if container.is_running
            ),
            labels=config.labels,
            annotations=config.annotations,
        )
