"""The CRI's calls that run a command or hand out an address for streams."""

from __future__ import annotations

from moorage.cri import pb
from moorage.engine.containers.commands import Commands
from moorage.engine.context import EngineContext
from moorage.engine.errors import PreconditionError
from moorage.engine.streams import StreamServer


class StreamCalls:
    """ExecSync answers with the output; the others with where the streams are served."""

    def __init__(self, context: EngineContext, commands: Commands, server: StreamServer) -> None:
        self._context = context
        self._commands = commands
        self._server = server

    async def exec_sync(self, request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:
        return await self._commands.exec_sync(request)

    async def exec(self, request: pb.ExecRequest) -> pb.ExecResponse:
        self._commands.require_running(request.container_id)
        return pb.ExecResponse(url=self._server.exec_url(request))

    async def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        self._commands.require_running(request.container_id)
        return pb.AttachResponse(url=self._server.attach_url(request))

    async def port_forward(self, request: pb.PortForwardRequest) -> pb.PortForwardResponse:
        sandbox = self._context.inventory.sandboxes.find(request.pod_sandbox_id)
        if not sandbox.record.is_ready:
            raise PreconditionError(f"sandbox {sandbox.id} is not ready")
        return pb.PortForwardResponse(url=self._server.port_forward_url(request))
