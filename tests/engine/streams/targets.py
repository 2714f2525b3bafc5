"""A target without a runtime: processes of the tests' own making, ports on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

from moorage.engine.handlers.adapters import STDERR, STDOUT
from moorage.engine.streams import dial_port
from moorage.wire.cri import pb
from moorage.wire.streaming.connection import Connection
from moorage.wire.streaming.inbox import Inbox

DEADLINE_S = 10.0
Program = Callable[["FakeProcess"], Awaitable[int]]


@dataclass(eq=False)
class FakeProcess:
    """A process whose program is a coroutine; killed by leaving its block, as the seam says."""

    program: Program
    is_container: bool = False
    stdin: Inbox = field(default_factory=Inbox)
    was_killed: bool = False
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    keeps_output_open: bool = False
    _size: tuple[int, int] = (0, 0)
    _resized: asyncio.Event = field(default_factory=asyncio.Event)
    _output: asyncio.Queue[tuple[int, bytes] | None] = field(
        default_factory=lambda: asyncio.Queue(maxsize=4)
    )

    def __post_init__(self) -> None:
        self._running = asyncio.ensure_future(self._run())

    async def _run(self) -> int:
        code = await self.program(self)
        if not self.keeps_output_open:
            await self._output.put(None)
        return code

    async def out(self, data: bytes) -> None:
        """What the program prints."""
        await self._output.put((STDOUT, data))

    async def complain(self, data: bytes) -> None:
        """What the program prints on its standard error."""
        await self._output.put((STDERR, data))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.is_container:
            await self.kill()
        self.closed.set()

    async def read(self) -> tuple[int, bytes] | None:
        return await self._output.get()

    async def write(self, data: bytes) -> None:
        if self.stdin.has_ended:
            raise BrokenPipeError("no reader")
        self.stdin.feed(data)
        await self.stdin.room()

    async def end_input(self) -> None:
        self.stdin.end()

    async def resize(self, width: int, height: int) -> None:
        self._size = (width, height)
        self._resized.set()

    async def until_sized(self, size: tuple[int, int]) -> None:
        """Return once the terminal has that size."""
        async with asyncio.timeout(DEADLINE_S):
            while self._size != size:
                self._resized.clear()
                await self._resized.wait()

    async def wait(self) -> int:
        return await asyncio.shield(self._running)

    async def kill(self) -> None:
        if not self._running.done():
            self.was_killed = True
            self._running.cancel()


@dataclass(eq=False)
class FakeTarget:
    """Runs `program` for whatever is asked, or raises `error`; pods' ports are this machine's."""

    program: Program | None = None
    error: Exception | None = None
    processes: list[FakeProcess] = field(default_factory=list)
    requests: list[pb.ExecRequest | pb.AttachRequest] = field(default_factory=list)
    keeps_output_open: bool = False
    started: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def process(self) -> FakeProcess:
        """The last one."""
        return self.processes[-1]

    async def exec(self, request: pb.ExecRequest) -> FakeProcess:
        return self._begin(request, is_container=False)

    async def attach(self, request: pb.AttachRequest) -> FakeProcess:
        return self._begin(request, is_container=True)

    async def dial(self, sandbox_id: str, port: int) -> Connection:
        if self.error:
            raise self.error
        assert sandbox_id == "s1"
        return await dial_port(None, port)

    def _begin(
        self, request: pb.ExecRequest | pb.AttachRequest, *, is_container: bool
    ) -> FakeProcess:
        self.requests.append(request)
        if self.error:
            raise self.error
        assert self.program is not None
        process = FakeProcess(self.program, is_container, keeps_output_open=self.keeps_output_open)
        self.processes.append(process)
        self.started.set()
        return process


async def silent(process: FakeProcess) -> int:
    """Says nothing and does not end."""
    await process.closed.wait()
    return 0


async def echo(process: FakeProcess) -> int:
    """Gives back what it reads, until there is no more."""
    while data := await process.stdin.read():
        await process.out(data)
    return 0


def says(out: bytes = b"", complaint: bytes = b"", code: int = 0) -> Program:
    """Prints that and ends with a code."""

    async def program(process: FakeProcess) -> int:
        if out:
            await process.out(out)
        if complaint:
            await process.complain(complaint)
        return code

    return program
