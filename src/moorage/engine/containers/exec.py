"""ExecSync, Exec: commands in running containers, to completion or with their streams passed on.

Source: CRI `ExecSync`, `Exec`; the output limit is the message limit of gRPC clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec

from moorage.cri import pb
from moorage.engine.containers.sandboxed_exec import SandboxedExec
from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError, InvalidError, TimeLimitError
from moorage.engine.inventory import Container
from moorage.engine.oci import exec_process
from moorage.handlers.adapters import STDERR, STDOUT, AdapterError, ExecProcess

MAX_OUTPUT_BYTES = 16 * 1024 * 1024 - 64 * 1024
# A background child of the command may hold its output open for ever.
DRAIN_S = 1.0


async def exec_sync(context: EngineContext, request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:
    """Run a command to completion. Returns its output, truncated at the limit, and exit code.

    Raises TimeLimitError after the request's timeout, with the command killed; NotFoundError,
    PreconditionError unless the container runs, InvalidError without a command, FailedError.
    """
    container = context.inventory.find_running(request.container_id)
    limit_s = float(request.timeout) if request.timeout > 0 else None
    try:
        async with asyncio.timeout(limit_s):
            return await _run(context, container, request.cmd)
    except TimeoutError:
        raise TimeLimitError(
            f"command {' '.join(request.cmd)!r} timed out after {request.timeout} s "
            f"in container {container.id}"
        ) from None


async def start_exec(
    context: EngineContext,
    container: Container,
    command: Sequence[str],
    *,
    has_stdin: bool,
    has_terminal: bool,
) -> ExecProcess:
    """Start a command in a container. Raises InvalidError without a command, FailedError."""
    if not command:
        raise InvalidError("no command given")
    spec = msgspec.json.decode((context.paths.bundle(container.id) / "config.json").read_bytes())
    process = exec_process(command, spec["process"], has_terminal=has_terminal)
    adapter, sandbox = context.adapter(container.sandbox), container.sandbox
    count_kills = partial(context.cgroups.oom_kills, sandbox.cgroup.path)
    kills = await count_kills() if adapter.needs_sandbox else None
    try:
        started = await adapter.exec(
            container.task(context.paths), process, has_stdin=has_stdin, has_terminal=has_terminal
        )
    except AdapterError as error:
        raise FailedError(f"failed to exec in container {container.id}: {error}") from error
    if not adapter.needs_sandbox:
        return started
    return SandboxedExec(
        started, container.config.metadata.name, count_kills, kills, has_terminal=has_terminal
    )


async def _run(
    context: EngineContext, container: Container, command: Sequence[str]
) -> pb.ExecSyncResponse:
    process = await start_exec(context, container, command, has_stdin=False, has_terminal=False)
    async with process:
        output = {STDOUT: bytearray(), STDERR: bytearray()}
        reader = asyncio.ensure_future(_collect(process, output))
        try:
            code = await process.wait()
            await asyncio.wait((reader,), timeout=DRAIN_S)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
    return pb.ExecSyncResponse(
        stdout=bytes(output[STDOUT]), stderr=bytes(output[STDERR]), exit_code=code
    )


async def _collect(process: ExecProcess, output: dict[int, bytearray]) -> None:
    """Read both streams to EOF; output above the limit is dropped."""
    while (chunk := await process.read()) is not None:
        stream, data = chunk
        collected = output[stream]
        collected += data[: max(0, MAX_OUTPUT_BYTES - len(collected))]
