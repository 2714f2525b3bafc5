"""A fake runtime behind the seam `Adapter`: tasks in memory, every call recorded."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from moorage.engine.drivers import Drivers
from moorage.engine.handlers.adapters import (
    STDOUT,
    Adapter,
    AdapterError,
    ExecProcess,
    Exit,
    Streams,
    Task,
    TaskNotFoundError,
    TaskUsage,
)
from moorage.engine.handlers.definition import HandlerDefinition
from moorage.engine.paths import EnginePaths
from moorage.linux.cgroups import Cgroups, Layout
from moorage.linux.reaper import Reaper
from tests.clocks import START_NS

FIRST_PID = 5001
FINISHED_NS = START_NS + 7


@dataclass
class FakeTask:
    """A task that was created; `exit` once it has ended."""

    task: Task
    pid: int
    is_started: bool = False
    exit: Exit | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


Script = Sequence[tuple[int, bytes] | int | None]


class FakeStreams:
    """The streams of a process that echoes its input, one piece at a time.

    With a script it prints its pieces and ends with the code at its end, or never for a None.
    """

    def __init__(self, script: Script = (0,)) -> None:
        self._script = script
        self.is_killed = False
        self.sizes: list[tuple[int, int]] = []
        self._pieces: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        for piece in script:
            if isinstance(piece, tuple):
                self._pieces.put_nowait(piece)
        if len(script) > 1:
            self._pieces.put_nowait(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def read(self) -> tuple[int, bytes] | None:
        return await self._pieces.get()

    async def write(self, data: bytes) -> None:
        self._pieces.put_nowait((STDOUT, data))

    async def end_input(self) -> None:
        self._pieces.put_nowait(None)

    async def resize(self, width: int, height: int) -> None:
        self.sizes.append((width, height))

    async def wait(self) -> int:
        code = self._script[-1]
        if code is None:
            await asyncio.Event().wait()
        assert isinstance(code, int)
        return 137 if self.is_killed else code

    async def kill(self) -> None:
        self.is_killed = True


class FakeAdapter:
    """A runtime whose tasks end when a test says so, or on a signal.

    `failures` maps a call to what it raises; `gates` maps a call to an event that it waits for.
    `programs` are the scripts of the next processes started in tasks. A task that is not
    `is_obeying` ends by SIGKILL alone.
    """

    def __init__(self) -> None:
        self.needs_sandbox = False
        self.mounts_rootfs = False
        self.is_obeying = True
        self.is_immortal = False
        self.is_closed = False
        self.calls: list[tuple[Any, ...]] = []
        self.failures: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, FakeTask] = {}
        self.usages: dict[str, TaskUsage] = {}
        self.programs: list[Script] = []
        self.processes_started: list[FakeStreams] = []

    async def create(self, task: Task) -> int:
        await self._note("create", task)
        if task.id in self.tasks:
            raise AdapterError(f"task {task.id} exists")
        pid = FIRST_PID + len(self.tasks)
        self.tasks[task.id] = FakeTask(task, pid)
        return pid

    async def start(self, task: Task) -> None:
        await self._note("start", task)
        self._find(task).is_started = True

    async def wait(self, task: Task) -> Exit:
        fake_task = self._find(task)
        await fake_task.ended.wait()
        assert fake_task.exit is not None
        return fake_task.exit

    async def exit_of(self, task: Task) -> Exit | None:
        return self._find(task).exit

    async def is_alive(self, task: Task) -> bool:
        await self._note("is_alive", task)
        return task.id in self.tasks and self.tasks[task.id].exit is None

    async def kill(self, task: Task, number: signal.Signals) -> None:
        await self._note("kill", task, number.name)
        fake_task = self._find(task)
        if self.is_immortal or (number is not signal.SIGKILL and not self.is_obeying):
            return
        if fake_task.exit is None:
            self.end(task.id, 128 + number)

    async def delete(self, task: Task) -> None:
        await self._note("delete", task)
        if task.id in self.tasks:
            if self.tasks[task.id].exit is None:
                self.end(task.id, 137)
            del self.tasks[task.id]

    async def exec(
        self, task: Task, process: Mapping[str, Any], *, has_stdin: bool, has_terminal: bool
    ) -> ExecProcess:
        await self._note("exec", task, dict(process), has_stdin, has_terminal)
        self._find(task)
        started = FakeStreams(self.programs.pop(0)) if self.programs else FakeStreams()
        self.processes_started.append(started)
        return started

    async def attach(self, task: Task) -> Streams:
        await self._note("attach", task)
        self._find(task)
        return FakeStreams()

    async def resize(self, task: Task, width: int, height: int) -> None:
        await self._note("resize", task, width, height)

    async def reopen_log(self, task: Task) -> None:
        await self._note("reopen_log", task)
        self._find(task)

    async def update(self, task: Task, resources: Mapping[str, Any]) -> None:
        await self._note("update", task, dict(resources))
        self._find(task)

    async def checkpoint(self, task: Task, archive: Path, *, keeps_running: bool) -> None:
        await self._note("checkpoint", task, archive, keeps_running)
        self._find(task)

    async def processes(self, task: Task) -> tuple[int, ...]:
        return (self._find(task).pid,)

    async def usage(self, task: Task) -> TaskUsage | None:
        await self._note("usage", task)
        return self.usages.get(task.id)

    async def close(self) -> None:
        self.is_closed = True

    def end(self, task_id: str, code: int, *, is_out_of_memory: bool = False) -> None:
        """Let a task end."""
        result = self.tasks[task_id]
        result.exit = Exit(code, FINISHED_NS, is_out_of_memory)
        result.ended.set()

    def calls_of(self, task_id: str) -> list[Any]:
        """The calls about a task in their order: a word, or a tuple of it and what was given."""
        chosen = [call for call in self.calls if call[1] == task_id]
        return [call[0] if len(call) == 2 else (call[0], *call[2:]) for call in chosen]

    async def _note(self, call: str, task: Task, *arguments: Any) -> None:
        self.calls.append((call, task.id, *arguments))
        if call in self.gates:
            await self.gates[call].wait()
        if call in self.failures:
            raise self.failures[call]

    def _find(self, task: Task) -> FakeTask:
        if task.id not in self.tasks:
            raise TaskNotFoundError(f"no such task {task.id}")
        return self.tasks[task.id]


class FakeDrivers(Drivers):
    """Drivers that have one fake runtime for all handlers; `wanted` is what they were asked for."""

    def __init__(self, paths: EnginePaths, adapter: FakeAdapter) -> None:
        super().__init__(paths, None, Reaper(), Cgroups(Layout.ABSENT))
        self.wanted: list[tuple[HandlerDefinition, Path]] = []
        self._fake = adapter

    def adapter(self, definition: HandlerDefinition, program: Path) -> Adapter:
        self.wanted.append((definition, program))
        return self._fake
