"""Container RPCs of the CRI: each finds its container and calls its module in `containers/`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from moorage.engine.containers.checkpoint import checkpoint_container
from moorage.engine.containers.create import create_container
from moorage.engine.containers.list import list_containers
from moorage.engine.containers.remove import remove_container
from moorage.engine.containers.reopen_log import reopen_container_log
from moorage.engine.containers.start import start_container
from moorage.engine.containers.status import container_status_response
from moorage.engine.containers.stop import stop_container
from moorage.engine.containers.update import update_container_resources
from moorage.engine.context import EngineContext
from moorage.wire.cri import pb


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
