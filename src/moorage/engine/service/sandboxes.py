"""The CRI's calls about pod sandboxes, and its events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from moorage.cri import pb
from moorage.engine.containers.messages import container_status
from moorage.engine.context import EngineContext
from moorage.engine.sandboxes.life import Sandboxes
from moorage.engine.sandboxes.messages import chosen_sandboxes, sandbox_item, sandbox_status


class SandboxCalls:
    """Runs, stops, removes and lists sandboxes."""

    def __init__(self, context: EngineContext, sandboxes: Sandboxes) -> None:
        self._context = context
        self._sandboxes = sandboxes

    async def run_pod_sandbox(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        with self._context.idle_gate.starting():
            sandbox = await self._sandboxes.run(request.config, request.runtime_handler)
        return pb.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    async def stop_pod_sandbox(
        self, request: pb.StopPodSandboxRequest
    ) -> pb.StopPodSandboxResponse:
        sandbox = self._context.inventory.sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            await self._sandboxes.stop(sandbox)
        return pb.StopPodSandboxResponse()

    async def remove_pod_sandbox(
        self, request: pb.RemovePodSandboxRequest
    ) -> pb.RemovePodSandboxResponse:
        sandbox = self._context.inventory.sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            await self._sandboxes.remove(sandbox)
        return pb.RemovePodSandboxResponse()

    async def pod_sandbox_status(
        self, request: pb.PodSandboxStatusRequest
    ) -> pb.PodSandboxStatusResponse:
        inventory = self._context.inventory
        sandbox = inventory.sandboxes.find(request.pod_sandbox_id)
        return pb.PodSandboxStatusResponse(
            status=sandbox_status(sandbox),
            info={"info": _info(self._context, sandbox.id)} if request.verbose else {},
            containers_statuses=[
                container_status(each) for each in inventory.containers_of(sandbox)
            ],
            timestamp=self._context.now_ns(),
        )

    async def list_pod_sandbox(
        self, request: pb.ListPodSandboxRequest
    ) -> pb.ListPodSandboxResponse:
        return pb.ListPodSandboxResponse(items=self._listed(request.filter))

    async def stream_pod_sandboxes(
        self, request: pb.StreamPodSandboxesRequest
    ) -> AsyncIterator[pb.StreamPodSandboxesResponse]:
        for item in self._listed(request.filter):
            yield pb.StreamPodSandboxesResponse(pod_sandboxes=[item])

    async def update_pod_sandbox_resources(
        self, request: pb.UpdatePodSandboxResourcesRequest
    ) -> pb.UpdatePodSandboxResourcesResponse:
        """Told after the kubelet has changed the pod's cgroup itself, so there is nothing to set.

        Source: CRI, the comment on the call.
        """
        self._context.inventory.sandboxes.find(request.pod_sandbox_id)
        return pb.UpdatePodSandboxResourcesResponse()

    async def get_container_events(
        self, request: pb.GetEventsRequest
    ) -> AsyncIterator[pb.ContainerEventResponse]:
        del request
        async for event in self._context.events.listen():
            yield event

    def _listed(self, wanted: pb.PodSandboxFilter) -> list[pb.PodSandbox]:
        chosen = chosen_sandboxes(self._context.inventory.sandboxes, wanted)
        return [sandbox_item(each) for each in chosen]


def _info(context: EngineContext, sandbox_id: str) -> str:
    """What a person who looks into a sandbox wants to know beyond its status."""
    record = context.inventory.sandboxes.find(sandbox_id).record
    told = {
        "pid": record.task_pid,
        "runtimeHandler": record.definition.name,
        "runtimeBinary": str(record.program),
        "namespaces": str(context.paths.namespaces / record.id),
        "network": msgspec.json.decode(record.attachment.result) if record.attachment else None,
    }
    return msgspec.json.encode(told).decode()
