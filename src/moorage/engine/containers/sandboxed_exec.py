"""Commands that end with their pod's kernel, and what their callers get then.

Under gVisor a pod's memory is that of one process, which is its kernel: the limit of the pod's
cgroup holds for it, and a command that exceeds the limit has it killed with everything in the pod.
The runtime then writes a line about its own protocol and exits with 128. The caller gets the reason
instead, and 137 as from any other runtime. Measured with runsc 20221219, of which no option keeps
the pod: the limit is enforced by the host's kernel alone, which can only kill the whole process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from moorage.engine.handlers.adapters import STDERR, STDOUT, ExecProcess

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
