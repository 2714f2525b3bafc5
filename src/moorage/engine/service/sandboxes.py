"""Sandbox RPCs of the CRI: each finds its sandbox and calls its module in `sandboxes/`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from moorage.engine.context import EngineContext
from moorage.engine.sandboxes.list import list_pod_sandboxes
from moorage.engine.sandboxes.remove import remove_pod_sandbox
from moorage.engine.sandboxes.run import run_pod_sandbox
from moorage.engine.sandboxes.status import pod_sandbox_status_response
from moorage.engine.sandboxes.stop import stop_pod_sandbox
from moorage.wire.cri import pb


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
