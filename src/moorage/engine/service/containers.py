"""The CRI's calls about containers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from moorage.cri import pb
from moorage.engine.containers.life import Containers
from moorage.engine.containers.messages import chosen_containers, container_item, container_status
from moorage.engine.context import EngineContext
from moorage.engine.errors import PreconditionError
from moorage.engine.inventory import Container
from moorage.engine.oci import resources_of
from moorage.engine.records import Stage


class ContainerCalls:
    """Creates, starts, stops, removes, lists and changes containers."""

    def __init__(self, context: EngineContext, containers: Containers) -> None:
        self._context = context
        self._containers = containers

    async def create_container(
        self, request: pb.CreateContainerRequest
    ) -> pb.CreateContainerResponse:
        sandbox = self._context.inventory.sandboxes.find(request.pod_sandbox_id)
        with self._context.idle_gate.starting():
            container = await self._containers.create(sandbox, request.config)
        return pb.CreateContainerResponse(container_id=container.id)

    async def start_container(self, request: pb.StartContainerRequest) -> pb.StartContainerResponse:
        with self._context.idle_gate.starting():
            await self._containers.start(self._find(request.container_id))
        return pb.StartContainerResponse()

    async def stop_container(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse:
        container = self._context.inventory.containers.get(request.container_id)
        if container is not None:
            await self._containers.stop(container, request.timeout)
        return pb.StopContainerResponse()

    async def remove_container(
        self, request: pb.RemoveContainerRequest
    ) -> pb.RemoveContainerResponse:
        container = self._context.inventory.containers.get(request.container_id)
        if container is not None:
            await self._containers.remove(container)
        return pb.RemoveContainerResponse()

    async def container_status(
        self, request: pb.ContainerStatusRequest
    ) -> pb.ContainerStatusResponse:
        container = self._find(request.container_id)
        info = {"info": self._info(container)} if request.verbose else {}
        return pb.ContainerStatusResponse(status=container_status(container), info=info)

    async def list_containers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        return pb.ListContainersResponse(containers=self._listed(request.filter))

    async def stream_containers(
        self, request: pb.StreamContainersRequest
    ) -> AsyncIterator[pb.StreamContainersResponse]:
        for item in self._listed(request.filter):
            yield pb.StreamContainersResponse(containers=[item])

    async def update_container_resources(
        self, request: pb.UpdateContainerResourcesRequest
    ) -> pb.UpdateContainerResourcesResponse:
        """Change the limits of a container: a running one's cgroup, a created one's bundle."""
        container = self._find(request.container_id)
        async with container.lock:
            await self._update(container, request.linux)
        return pb.UpdateContainerResourcesResponse()

    async def reopen_container_log(
        self, request: pb.ReopenContainerLogRequest
    ) -> pb.ReopenContainerLogResponse:
        container = self._running(request.container_id)
        adapter = self._context.adapter(container.sandbox)
        await adapter.reopen_log(container.task(self._context.paths))
        return pb.ReopenContainerLogResponse()

    async def checkpoint_container(
        self, request: pb.CheckpointContainerRequest
    ) -> pb.CheckpointContainerResponse:
        container = self._running(request.container_id)
        archive = Path(request.location)
        await asyncio.to_thread(archive.mkdir, parents=True, exist_ok=True)
        await self._context.adapter(container.sandbox).checkpoint(
            container.task(self._context.paths), archive, keeps_running=True
        )
        return pb.CheckpointContainerResponse()

    async def _update(self, container: Container, wanted: pb.LinuxContainerResources) -> None:
        if container.record.stage is Stage.EXITED:
            return
        config = pb.ContainerConfig()
        config.CopyFrom(container.config)
        config.linux.resources.MergeFrom(wanted)
        resources = resources_of(wanted, self._context.host)
        task = container.task(self._context.paths)
        if container.is_running:
            await self._context.adapter(container.sandbox).update(task, resources)
        else:
            file = task.bundle / "config.json"
            document = msgspec.json.decode(file.read_bytes())
            document["linux"]["resources"].update(resources)
            file.write_bytes(msgspec.json.encode(document))
        self._containers.keep_config(container, config)

    def _find(self, container_id: str) -> Container:
        return self._context.inventory.containers.find(container_id)

    def _running(self, container_id: str) -> Container:
        container = self._find(container_id)
        if not container.is_running:
            raise PreconditionError(f"container {container.id} is not running")
        return container

    def _listed(self, wanted: pb.ContainerFilter) -> list[pb.Container]:
        chosen = chosen_containers(self._context.inventory.containers, wanted)
        return [container_item(each) for each in chosen]

    def _info(self, container: Container) -> str:
        record, sandbox = container.record, container.sandbox.record
        told = {
            "sandboxID": record.sandbox_id,
            "pid": record.pid,
            "runtimeHandler": sandbox.definition.name,
            "runtimeBinary": str(sandbox.program),
            "bundle": str(self._context.paths.bundle(record.id)),
            "cgroup": self._containers.cgroup(container),
        }
        return msgspec.json.encode(told).decode()
