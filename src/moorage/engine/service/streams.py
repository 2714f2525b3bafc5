"""Streaming RPCs of the CRI: ExecSync, Exec, Attach, PortForward, and what their URLs lead to."""

from __future__ import annotations

from collections.abc import Mapping

from moorage.engine.containers.exec import (
    MAX_OUTPUT_BYTES,
    OutputLimit,
    attach,
    exec_sync,
    start_exec,
)
from moorage.engine.context import EngineContext
from moorage.engine.handlers.adapters import ExecProcess, Streams
from moorage.engine.sandboxes.state import dial_pod_port
from moorage.engine.service.server import with_metadata
from moorage.engine.streams import StreamServer
from moorage.wire.cri import pb
from moorage.wire.cri.client import OUTPUT_TAIL
from moorage.wire.streaming.connection import Connection


class StreamServicer:
    """ExecSync returns the output; the others return the URL of the streaming endpoint."""

    def __init__(self, context: EngineContext, server: StreamServer) -> None:
        self._context = context
        self._server = server
        self._output_limit = OutputLimit()

    @with_metadata
    async def exec_sync(
        self, request: pb.ExecSyncRequest, metadata: Mapping[str, str | bytes]
    ) -> pb.ExecSyncResponse:
        tail_bytes = _tail_bytes(metadata.get(OUTPUT_TAIL, ""))
        return await exec_sync(self._context, request, self._output_limit, tail_bytes)

    async def exec(self, request: pb.ExecRequest) -> pb.ExecResponse:
        self._context.inventory.find_running(request.container_id)
        return pb.ExecResponse(url=self._server.exec_url(request))

    async def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        self._context.inventory.find_running(request.container_id)
        return pb.AttachResponse(url=self._server.attach_url(request))

    async def port_forward(self, request: pb.PortForwardRequest) -> pb.PortForwardResponse:
        self._context.inventory.find_ready(request.pod_sandbox_id)
        return pb.PortForwardResponse(url=self._server.port_forward_url(request))


def _tail_bytes(text: str | bytes) -> int | None:
    """Return how much of each stream the client wants; None for the CRI's own limit."""
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal()
    return min(int(text[:9]), MAX_OUTPUT_BYTES) or None if is_number else None


class EngineTarget:
    """The streaming endpoint's target: the engine's containers and sandboxes."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def exec(self, request: pb.ExecRequest) -> ExecProcess:
        container = self._context.inventory.find_running(request.container_id)
        return await start_exec(
            self._context,
            container,
            request.cmd,
            has_stdin=request.stdin,
            has_terminal=request.tty,
        )

    async def attach(self, request: pb.AttachRequest) -> Streams:
        return await attach(self._context, request.container_id)

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        return await dial_pod_port(self._context, sandbox_id, port)
