"""Container RPCs of the CRI: each finds its container and calls its module in `containers/`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from moorage.engine.containers.bundle import create_container
from moorage.engine.containers.lifecycle import remove_container, start_container, stop_container
from moorage.engine.containers.log import reopen_container_log
from moorage.engine.containers.state import (
    checkpoint_container,
    container_status_response,
    list_containers,
    update_container_resources,
)
from moorage.engine.context import EngineContext
from moorage.engine.sandboxes.run import remove_pod_sandbox, run_pod_sandbox
from moorage.engine.sandboxes.state import list_pod_sandboxes, pod_sandbox_status_response
from moorage.engine.sandboxes.stop import stop_pod_sandbox
from moorage.wire.cri import pb

# Sandbox RPCs of the CRI: each finds its sandbox and calls its module in `sandboxes/`.


class SandboxServicer:
    """RunPodSandbox, StopPodSandbox, … A missing sandbox is no error for stop and remove."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._sandboxes = context.inventory.sandboxes

    async def run_pod_sandbox(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        with self._context.idle_gate.starting():
            sandbox = await run_pod_sandbox(self._context, request.config, request.runtime_handler)
        return pb.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    async def stop_pod_sandbox(
        self, request: pb.StopPodSandboxRequest
    ) -> pb.StopPodSandboxResponse:
        sandbox = self._sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            await stop_pod_sandbox(self._context, sandbox)
        return pb.StopPodSandboxResponse()

    async def remove_pod_sandbox(
        self, request: pb.RemovePodSandboxRequest
    ) -> pb.RemovePodSandboxResponse:
        sandbox = self._sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            await remove_pod_sandbox(self._context, sandbox)
        return pb.RemovePodSandboxResponse()

    async def pod_sandbox_status(
        self, request: pb.PodSandboxStatusRequest
    ) -> pb.PodSandboxStatusResponse:
        sandbox = self._sandboxes.find(request.pod_sandbox_id)
        return pod_sandbox_status_response(self._context, sandbox, is_verbose=request.verbose)

    async def list_pod_sandbox(
        self, request: pb.ListPodSandboxRequest
    ) -> pb.ListPodSandboxResponse:
        return pb.ListPodSandboxResponse(items=list_pod_sandboxes(self._sandboxes, request.filter))

    async def stream_pod_sandboxes(
        self, request: pb.StreamPodSandboxesRequest
    ) -> AsyncIterator[pb.StreamPodSandboxesResponse]:
        for item in list_pod_sandboxes(self._sandboxes, request.filter):
            yield pb.StreamPodSandboxesResponse(pod_sandboxes=[item])

    async def update_pod_sandbox_resources(
        self, request: pb.UpdatePodSandboxResourcesRequest
    ) -> pb.UpdatePodSandboxResourcesResponse:
        """Accept the request: the kubelet has already changed the pod's cgroup itself.

        Raises NotFoundError. Source: CRI, the comment on the call.
        """
        self._sandboxes.find(request.pod_sandbox_id)
        return pb.UpdatePodSandboxResourcesResponse()

    async def get_container_events(
        self, request: pb.GetEventsRequest
    ) -> AsyncIterator[pb.ContainerEventResponse]:
        del request
        async for event in self._context.events.listen():
            yield event


class ContainerServicer:
    """CreateContainer, StartContainer, … A missing container is no error for stop and remove."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._containers = context.inventory.containers

    async def create_container(
        self, request: pb.CreateContainerRequest
    ) -> pb.CreateContainerResponse:
        sandbox = self._context.inventory.sandboxes.find(request.pod_sandbox_id)
        with self._context.idle_gate.starting():
            container = await create_container(
                self._context,
                sandbox,
                request.config,
                request.sandbox_config if request.HasField("sandbox_config") else None,
            )
        return pb.CreateContainerResponse(container_id=container.id)

    async def start_container(self, request: pb.StartContainerRequest) -> pb.StartContainerResponse:
        with self._context.idle_gate.starting():
            await start_container(self._context, self._containers.find(request.container_id))
        return pb.StartContainerResponse()

    async def stop_container(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse:
        container = self._containers.get(request.container_id)
        if container is not None:
            await stop_container(self._context, container, request.timeout)
        return pb.StopContainerResponse()

    async def remove_container(
        self, request: pb.RemoveContainerRequest
    ) -> pb.RemoveContainerResponse:
        container = self._containers.get(request.container_id)
        if container is not None:
            await remove_container(self._context, container)
        return pb.RemoveContainerResponse()

    async def container_status(
        self, request: pb.ContainerStatusRequest
    ) -> pb.ContainerStatusResponse:
        container = self._containers.find(request.container_id)
        return await container_status_response(self._context, container, is_verbose=request.verbose)

    async def list_containers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        return pb.ListContainersResponse(
            containers=list_containers(self._containers, request.filter)
        )

    async def stream_containers(
        self, request: pb.StreamContainersRequest
    ) -> AsyncIterator[pb.StreamContainersResponse]:
        for item in list_containers(self._containers, request.filter):
            yield pb.StreamContainersResponse(containers=[item])

    async def update_container_resources(
        self, request: pb.UpdateContainerResourcesRequest
    ) -> pb.UpdateContainerResourcesResponse:
        container = self._containers.find(request.container_id)
        await update_container_resources(self._context, container, request.linux)
        return pb.UpdateContainerResourcesResponse()

    async def reopen_container_log(
        self, request: pb.ReopenContainerLogRequest
    ) -> pb.ReopenContainerLogResponse:
        await reopen_container_log(self._context, request.container_id)
        return pb.ReopenContainerLogResponse()

    async def checkpoint_container(
        self, request: pb.CheckpointContainerRequest
    ) -> pb.CheckpointContainerResponse:
        await checkpoint_container(self._context, request.container_id, Path(request.location))
        return pb.CheckpointContainerResponse()
