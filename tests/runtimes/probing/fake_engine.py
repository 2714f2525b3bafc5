"""A fake of a container engine behind a real socket: CRI, as far as probes need it.

A container does nothing: at its start `output` is written to its log, and its state is `ending`.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from moorage.wire.cri import pb
from moorage.wire.cri.generated.runtime_pb2_grpc import (
    ImageServiceServicer,
    RuntimeServiceServicer,
    add_ImageServiceServicer_to_server,
    add_RuntimeServiceServicer_to_server,
)

_Context = aio.ServicerContext[Any, Any]
# gRPC answers UNIMPLEMENTED to what a fake leaves out; by their types all calls are abstract.
_RuntimeService: Any = RuntimeServiceServicer
_ImageService: Any = ImageServiceServicer


@dataclass
class Script:
    """What the engine does. `failures` are by the method's name: code and sentence, each time."""

    images: set[str] = field(default_factory=set)
    failures: dict[str, tuple[grpc.StatusCode, str]] = field(default_factory=dict)
    output: bytes = b""
    ending: pb.ContainerStatus = field(
        default_factory=lambda: pb.ContainerStatus(state=pb.CONTAINER_EXITED)
    )
    executed: pb.ExecSyncResponse = field(default_factory=pb.ExecSyncResponse)
    forward_url: str = ""


class FakeEngine(_RuntimeService, _ImageService):  # type: ignore[misc]  # see above
    """`requests` are all that were received, by the method's name."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.sandboxes: dict[str, pb.PodSandbox] = {}
        self.requests: list[tuple[str, Any]] = []
        self.metadata: dict[str, str] = {}
        self._configs: dict[str, pb.PodSandboxConfig] = {}
        self._ids = itertools.count(1)

    def named(self, method: str) -> list[Any]:
        """The requests of one method."""
        return [request for name, request in self.requests if name == method]

    def add(self, labels: dict[str, str], handler: str = "") -> str:
        """Add a sandbox that an earlier process left."""
        identifier = f"s{next(self._ids)}"
        self.sandboxes[identifier] = pb.PodSandbox(
            id=identifier, labels=labels, runtime_handler=handler
        )
        return identifier

    async def _note(self, method: str, request: Any, context: _Context) -> None:
        self.requests.append((method, request))
        if method in self.script.failures:
            await context.abort(*self.script.failures[method])

    async def ImageStatus(self, request: Any, context: _Context) -> Any:  # noqa: N802
        await self._note("ImageStatus", request, context)
        name = request.image.image
        image = pb.Image(id=name) if name in self.script.images else None
        return pb.ImageStatusResponse(image=image)

    async def RunPodSandbox(self, request: Any, context: _Context) -> Any:  # noqa: N802
        identifier = f"s{next(self._ids)}"
        self._configs[identifier] = request.config
        self.sandboxes[identifier] = pb.PodSandbox(
            id=identifier,
            metadata=request.config.metadata,
            labels=request.config.labels,
            runtime_handler=request.runtime_handler,
        )
        await self._note("RunPodSandbox", request, context)
        return pb.RunPodSandboxResponse(pod_sandbox_id=identifier)

    async def CreateContainer(self, request: Any, context: _Context) -> Any:  # noqa: N802
        await self._note("CreateContainer", request, context)
        return pb.CreateContainerResponse(container_id=f"c-{request.pod_sandbox_id}")

    async def StartContainer(self, request: Any, context: _Context) -> Any:  # noqa: N802
        await self._note("StartContainer", request, context)
        config = self._configs[request.container_id.removeprefix("c-")]
        (Path(config.log_directory) / "probe.log").write_bytes(self.script.output)
        return pb.StartContainerResponse()

    async def ContainerStatus(self, request: Any, context: _Context) -> Any:  # noqa: N802
        await self._note("ContainerStatus", request, context)
        return pb.ContainerStatusResponse(status=self.script.ending)

    async def ExecSync(self, request: Any, context: _Context) -> Any:  # noqa: N802
        self.metadata = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
        await self._note("ExecSync", request, context)
        return self.script.executed

    async def UpdateContainerResources(  # noqa: N802
        self, request: Any, context: _Context
    ) -> Any:
        await self._note("UpdateContainerResources", request, context)
        return pb.UpdateContainerResourcesResponse()

    async def CheckpointContainer(self, request: Any, context: _Context) -> Any:  # noqa: N802
        await self._note("CheckpointContainer", request, context)
        return pb.CheckpointContainerResponse()

    async def PortForward(self, request: Any, context: _Context) -> Any:  # noqa: N802
        await self._note("PortForward", request, context)
        return pb.PortForwardResponse(url=self.script.forward_url)

    async def ListPodSandbox(self, request: Any, context: _Context) -> Any:  # noqa: N802
        await self._note("ListPodSandbox", request, context)
        wanted = request.filter.label_selector.items()
        return pb.ListPodSandboxResponse(
            items=[item for item in self.sandboxes.values() if wanted <= dict(item.labels).items()]
        )

    async def StopPodSandbox(self, request: Any, context: _Context) -> Any:  # noqa: N802
        await self._note("StopPodSandbox", request, context)
        return pb.StopPodSandboxResponse()

    async def RemovePodSandbox(self, request: Any, context: _Context) -> Any:  # noqa: N802
        await self._note("RemovePodSandbox", request, context)
        if self.sandboxes.pop(request.pod_sandbox_id, None) is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such sandbox")
        return pb.RemovePodSandboxResponse()


@asynccontextmanager
async def serving(engine: FakeEngine, directory: Path) -> AsyncIterator[str]:
    """The endpoint of a fake that serves while the block lasts."""
    endpoint = f"unix://{directory}/engine.sock"
    server = aio.server()
    add_RuntimeServiceServicer_to_server(engine, server)
    add_ImageServiceServicer_to_server(engine, server)
    server.add_insecure_port(endpoint)
    await server.start()
    try:
        yield endpoint
    finally:
        await server.stop(0)
