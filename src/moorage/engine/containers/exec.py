"""ExecSync, Exec: commands in running containers, to completion or with their streams passed on.

Source: CRI `ExecSync`, `Exec`; the output limit is the message limit of gRPC clients
(CVE-2022-1708: a container chooses how much its commands print).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from moorage.engine.context import EngineContext
from moorage.engine.errors import FailedError, InvalidError, TimeLimitError
from moorage.engine.handlers.adapters import (
    STDERR,
    STDOUT,
    AdapterError,
    ExecProcess,
    Streams,
    TaskNotFoundError,
)
from moorage.engine.inventory import Container
from moorage.engine.oci import exec_process
from moorage.wire.cri import pb

# Attach: the streams of a running container's first process.
#
# Source: CRI `Attach`.


async def attach(context: EngineContext, container_id: str) -> Streams:
    """Return the container's streams. Raises NotFoundError, PreconditionError, AdapterError."""
    container = context.inventory.find_running(container_id)
    return await context.adapter(container.sandbox).attach(container.task(context.paths))


# Container tasks: calls to the runtime adapter that several RPCs share.


async def delete_task(context: EngineContext, container: Container) -> None:
    """Delete the container's task, killing it first; absent is no error. Raises FailedError."""
    try:
        await context.adapter(container.sandbox).delete(container.task(context.paths))
    except AdapterError as error:
        raise FailedError(f"container {container.id!r} cannot be removed: {error}") from error


async def signal_task(context: EngineContext, container: Container, number: int) -> None:
    """Signal the container's first process; absent is no error. Raises FailedError."""
    adapter = context.adapter(container.sandbox)
    try:
        await adapter.kill(container.task(context.paths), signal.Signals(number))
    except TaskNotFoundError:
        return
    except AdapterError as error:
        raise FailedError(f"container {container.id!r} cannot be signalled: {error}") from error


MAX_OUTPUT_BYTES = 16 * 1024 * 1024 - 64 * 1024
# A background child of the command may hold its output open for ever.
DRAIN_S = 1.0


class OutputLimit:
    """Bytes of output that all ExecSync calls of an engine may hold together."""

    def __init__(self, most_bytes: int = 4 * MAX_OUTPUT_BYTES) -> None:
        self._left_bytes = most_bytes

    def take(self, wanted_bytes: int) -> int:
        """Return how many bytes of these may be kept; they count until they are given back."""
        taken = min(wanted_bytes, self._left_bytes)
        self._left_bytes -= taken
        return taken

    def give_back(self, taken_bytes: int) -> None:
        self._left_bytes += taken_bytes


class Output:
    """Output of a command: the first bytes of both streams, or with `tail_bytes` the last of each.

    What is beyond the limit is dropped, as the CRI asks. A context manager, which gives back what
    was taken of the limit.
    """

    def __init__(
        self,
        limit: OutputLimit,
        tail_bytes: int | None = None,
        most_bytes: int = MAX_OUTPUT_BYTES,
    ) -> None:
        self._limit = limit
        self._tail_bytes = tail_bytes
        self._most_bytes = self._left_bytes = most_bytes
        self._taken_bytes = 0
        self._streams = {STDOUT: bytearray(), STDERR: bytearray()}

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self._limit.give_back(self._taken_bytes)

    def __getitem__(self, stream: int) -> bytes:
        return bytes(self._streams[stream])

    def add(self, stream: int, data: bytes) -> None:
        """Keep the part of a piece of a stream that the limits allow."""
        kept = self._streams[stream]
        if self._tail_bytes is not None:
            kept += data[-self._tail_bytes :]
            del kept[: -self._tail_bytes]
            return
        # One stream leaves a little for the other: an error comes after a flood.
        room = min(self._left_bytes, self._most_bytes - self._most_bytes // 256 - len(kept))
        taken = self._limit.take(min(len(data), max(0, room)))
        self._left_bytes -= taken
        self._taken_bytes += taken
        kept += data[:taken]


async def exec_sync(
    context: EngineContext,
    request: pb.ExecSyncRequest,
    limit: OutputLimit,
    tail_bytes: int | None = None,
    *,
    most_bytes: int = MAX_OUTPUT_BYTES,
    drain_s: float = DRAIN_S,
) -> pb.ExecSyncResponse:
    """Run a command to completion. Returns its output, truncated at the limit, and exit code.

    With `tail_bytes` only the last bytes of each stream.

    Raises TimeLimitError after the request's timeout, with the command killed; NotFoundError,
    PreconditionError unless the container runs, InvalidError without a command, FailedError.
    """
    container = context.inventory.find_running(request.container_id)
    limit_s = float(request.timeout) if request.timeout > 0 else None
    try:
        async with asyncio.timeout(limit_s):
            with Output(limit, tail_bytes, most_bytes) as output:
                return await _run(context, container, request.cmd, output, drain_s)
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
    context: EngineContext,
    container: Container,
    command: Sequence[str],
    output: Output,
    drain_s: float,
) -> pb.ExecSyncResponse:
    process = await start_exec(context, container, command, has_stdin=False, has_terminal=False)
    async with process:
        reader = asyncio.ensure_future(_collect(process, output))
        try:
            code = await process.wait()
            await asyncio.wait((reader,), timeout=drain_s)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
    return pb.ExecSyncResponse(stdout=output[STDOUT], stderr=output[STDERR], exit_code=code)


async def _collect(process: ExecProcess, output: Output) -> None:
    """Read both streams to EOF."""
    while (chunk := await process.read()) is not None:
        output.add(*chunk)


# Commands that end with their pod's kernel, and what their callers get then.
#
# Under gVisor a pod's memory is that of one process, which is its kernel: the limit of the pod's
# cgroup holds for it, and a command that exceeds the limit has it killed with everything in the
# pod. The runtime then writes a line about its own protocol and exits with 128. The caller gets the
# reason
# instead, and 137 as from any other runtime. Measured with runsc 20221219, of which no option keeps
# the pod: the limit is enforced by the host's kernel alone, which can only kill the whole process.

OOM_KILLED = 128 + 9
_RUNTIME_FAILED = 128
_OWN_TEXT = b"waiting on pid "

CountKills = Callable[[], Awaitable[int | None]]
"""Returns how many processes of the sandbox were killed for memory; None if nothing counts them."""


class SandboxedExec:
    """A command in a sandbox with a kernel of its own. `ExecProcess` documents the methods."""

    def __init__(
        self,
        process: ExecProcess,
        container: str,
        count_kills: CountKills,
        kills_before: int | None,
        *,
        has_terminal: bool,
    ) -> None:
        self._process = process
        self._container = container
        self._count_kills = count_kills
        self._kills_before = kills_before or 0
        self._stream = STDOUT if has_terminal else STDERR
        self._has_ended = False

    async def __aenter__(self) -> SandboxedExec:
        await self._process.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._process.__aexit__(*exc)

    async def read(self) -> tuple[int, bytes] | None:
        """Return output; of a command that was killed for memory the reason comes last.

        The runtime's own text is left out then.
        """
        while not self._has_ended:
            chunk = await self._process.read()
            if chunk is None:
                self._has_ended = True
                return (self._stream, self._reason()) if await self._is_killed() else None
            if not chunk[1].startswith(_OWN_TEXT) or not await self._is_killed():
                return chunk
        return None

    async def write(self, data: bytes) -> None:
        await self._process.write(data)

    async def end_input(self) -> None:
        await self._process.end_input()

    async def resize(self, width: int, height: int) -> None:
        await self._process.resize(width, height)

    async def wait(self) -> int:
        code = await self._process.wait()
        return OOM_KILLED if code == _RUNTIME_FAILED and await self._has_kills() else code

    async def kill(self) -> None:
        await self._process.kill()

    async def _is_killed(self) -> bool:
        # The count first: a command that only writes such a line must not be waited for.
        return await self._has_kills() and await self.wait() == OOM_KILLED

    async def _has_kills(self) -> bool:
        kills = await self._count_kills()
        return kills is not None and kills > self._kills_before

    def _reason(self) -> bytes:
        return (
            f"the command exceeded the memory limit of its pod: in the sandbox of container "
            f"{self._container} all processes share that limit, so the whole pod was killed "
            "(OOMKilled); give it more memory, or run the command in a pod of its own\n"
        ).encode()
