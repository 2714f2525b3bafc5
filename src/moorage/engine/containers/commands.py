"""Commands in running containers: to their end, or with their streams handed on.

Source: CRI `ExecSync`, `Exec`, `Attach`, `PortForward`; the output limit is the gRPC clients'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from moorage.cri import pb
from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError, InvalidError, PreconditionError, TimeLimitError
from moorage.engine.inventory import Container
from moorage.engine.oci import exec_process
from moorage.engine.streams.pod_port import dial_port
from moorage.handlers.adapters import STDERR, STDOUT, AdapterError, ExecProcess, Streams
from moorage.linux import pinned
from moorage.streaming.connection import Connection

MOST_OUTPUT_BYTES = 16 * 1024 * 1024 - 64 * 1024
# What a command leaves behind may hold its output open for ever.
DRAIN_S = 1.0


class Commands:
    """Runs commands in containers, and reaches into pods. It is the streaming endpoint's target."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context

    async def exec_sync(self, request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:
        """Run a command to its end. Raises TimeLimitError, and it has ended then too."""
        container = self.require_running(request.container_id)
        limit_s = float(request.timeout) if request.timeout > 0 else None
        try:
            async with asyncio.timeout(limit_s):
                return await self._to_end(container, request.cmd)
        except TimeoutError:
            raise TimeLimitError(
                f"command {' '.join(request.cmd)!r} timed out after {request.timeout} s "
                f"in container {container.id}"
            ) from None

    async def exec(self, request: pb.ExecRequest) -> ExecProcess:
        container = self.require_running(request.container_id)
        return await self._start(
            container, request.cmd, has_stdin=request.stdin, has_terminal=request.tty
        )

    async def attach(self, request: pb.AttachRequest) -> Streams:
        container = self.require_running(request.container_id)
        adapter = self._context.adapter(container.sandbox)
        return await adapter.attach(container.task(self._context.paths))

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        sandbox = self._context.inventory.sandboxes.find(sandbox_id)
        if not sandbox.record.is_ready:
            raise PreconditionError(f"sandbox {sandbox.id} is not ready")
        is_on_host = sandbox.namespace_options.network == pb.NODE
        directory = self._context.paths.namespaces / sandbox.id
        return await dial_port(None if is_on_host else directory / pinned.NET, port)

    async def _to_end(self, container: Container, cmd: Sequence[str]) -> pb.ExecSyncResponse:
        process = await self._start(container, cmd, has_stdin=False, has_terminal=False)
        async with process:
            output = {STDOUT: bytearray(), STDERR: bytearray()}
            reading = asyncio.ensure_future(_collect(process, output))
            try:
                code = await process.wait()
                await asyncio.wait((reading,), timeout=DRAIN_S)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        return pb.ExecSyncResponse(
            stdout=bytes(output[STDOUT]), stderr=bytes(output[STDERR]), exit_code=code
        )

    async def _start(
        self, container: Container, cmd: Sequence[str], *, has_stdin: bool, has_terminal: bool
    ) -> ExecProcess:
        if not cmd:
            raise InvalidError("no command given")
        paths = self._context.paths
        spec = msgspec.json.decode((paths.bundle(container.id) / "config.json").read_bytes())
        process = exec_process(cmd, spec["process"], has_terminal=has_terminal)
        try:
            return await self._context.adapter(container.sandbox).exec(
                container.task(paths), process, has_stdin=has_stdin, has_terminal=has_terminal
            )
        except AdapterError as error:
            raise FailedError(f"failed to exec in container {container.id}: {error}") from error

    def require_running(self, container_id: str) -> Container:
        """The container, which runs. Raises NotFoundError, PreconditionError."""
        container = self._context.inventory.containers.find(container_id)
        if not container.is_running:
            state = container.record.stage
            raise PreconditionError(f"container {container.id} is not running: it is {state}")
        return container


async def _collect(process: ExecProcess, output: dict[int, bytearray]) -> None:
    """Read both outputs to their ends; what is over the limit is read and dropped."""
    while (piece := await process.read()) is not None:
        source, data = piece
        kept = output[source]
        kept += data[: max(0, MOST_OUTPUT_BYTES - len(kept))]
