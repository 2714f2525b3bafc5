"""What adapters share whose tasks each have a conmon: everything but how a task is made.

A command in a task is started by the runtime's `exec`, which leaves it to us: as we are the
subreaper, its exit code comes to us.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from moorage.handlers.adapters.adapter import (
    AdapterError,
    ExecProcess,
    Exit,
    Streams,
    Task,
    TaskNotFoundError,
)
from moorage.handlers.adapters.command_line import CommandLine, Descriptors
from moorage.handlers.adapters.conmon import Conmon, TaskFiles
from moorage.handlers.adapters.exec_files import ExecFiles
from moorage.handlers.adapters.process_streams import ConsoleSocket, Pipes, ProcessStreams
from moorage.handlers.adapters.task_cgroup import cgroup_of, remove_task_cgroup
from moorage.linux.cgroups import current_cgroups
from moorage.linux.reaper import Reaper

_UNKNOWN = 255


class MonitoredAdapter:
    """The part of `Adapter` that conmon and the runtime's common commands answer."""

    terminal_options: ClassVar[tuple[str, ...]] = ("--tty",)
    """What the runtime's `exec` wants to hear of a terminal besides its socket."""

    def __init__(
        self, command_line: CommandLine, conmon: Conmon, reaper: Reaper, scratch: Path
    ) -> None:
        """`scratch` is a directory for short-lived files; its path must be short, for sockets."""
        self._command_line = command_line
        self._conmon = conmon
        self._reaper = reaper
        self._scratch = scratch

    async def wait(self, task: Task) -> Exit:
        """How it ended. Without its monitor a container cannot go on: its output has no place."""
        ended = await self._conmon.wait(task)
        if self._conmon.exit_of(task) is None:
            await self._command_line.delete(task.id)
            if task.bundle.is_dir():
                TaskFiles(task.bundle).exit.write_text(str(ended.code))
        return ended

    async def exit_of(self, task: Task) -> Exit | None:
        return self._conmon.exit_of(task)

    async def is_alive(self, task: Task) -> bool:
        return self._conmon.exit_of(task) is None and self._conmon.is_watched(task)

    async def kill(self, task: Task, number: signal.Signals, *, to_all: bool = False) -> None:
        everything = ("--all",) if to_all else ()
        try:
            await self._command_line.run("kill", *everything, task.id, str(int(number)))
        except TaskNotFoundError:
            return

    async def attach(self, task: Task) -> Streams:
        return self._conmon.attach(task)

    async def resize(self, task: Task, width: int, height: int) -> None:
        self._conmon.resize(task, width, height)

    async def reopen_log(self, task: Task) -> None:
        await self._conmon.reopen_log(task)

    async def close(self) -> None:
        """Nothing is kept open between calls."""

    async def exec(
        self, task: Task, process: Mapping[str, Any], *, has_stdin: bool, has_terminal: bool
    ) -> ExecProcess:
        files = ExecFiles.write(self._scratch, process, has_terminal=has_terminal)
        try:
            if has_terminal:
                return await self._exec_on_terminal(task, files)
            return await self._exec_on_pipes(task, files, has_stdin=has_stdin)
        except BaseException:
            files.remove()
            raise

    async def _exec_on_pipes(
        self, task: Task, files: ExecFiles, *, has_stdin: bool
    ) -> StartedProcess:
        pipes, ends = Pipes.make(has_stdin=has_stdin)
        try:
            try:
                await self._exec(task, files, (), (ends.stdin, ends.stdout, ends.stderr))
            finally:
                ends.close()
            return self._started(task, files, pipes)
        except BaseException:
            pipes.close()
            raise

    async def _exec_on_terminal(self, task: Task, files: ExecFiles) -> StartedProcess:
        async with ConsoleSocket(files.console) as console:
            handing_over = asyncio.ensure_future(console.receive())
            try:
                options = (*self.terminal_options, "--console-socket", str(console.path))
                await self._exec(task, files, options)
                return self._started(task, files, await handing_over)
            except (OSError, TimeoutError) as error:
                raise AdapterError(f"no terminal for a command in {task.id}: {error}") from error
            finally:
                handing_over.cancel()

    async def _end_creation(self, task: Task) -> None:
        """Kill a `create` that goes on for nobody: it was cut short, or does not come back."""
        if not TaskFiles(task.bundle).pid.exists() and self._conmon.exit_of(task) is None:
            await self._conmon.abandon(task)
            # Made, perhaps, and not noted down yet by a runtime that is no more.
            await remove_task_cgroup(current_cgroups(), cgroup_of(task))

    def _started(self, task: Task, files: ExecFiles, streams: ProcessStreams) -> StartedProcess:
        """The process that the runtime has left behind. Raises AdapterError."""
        del task
        return StartedProcess(files, streams, self._reaper)

    async def _exec(
        self,
        task: Task,
        files: ExecFiles,
        options: Sequence[str],
        streams: Descriptors | None = None,
    ) -> None:
        arguments = ("--detach", "--process", str(files.process), "--pid-file", str(files.pid_file))
        await self._command_line.run("exec", *arguments, *options, task.id, streams=streams)


class StartedProcess:
    """A process that a runtime has left behind: an orphan of ours."""

    def __init__(self, files: ExecFiles, streams: ProcessStreams, reaper: Reaper) -> None:
        """Raises AdapterError when the runtime did not tell its id."""
        self._files = files
        self._pid = files.pid()
        self._streams = streams
        try:
            self._ending = reaper.watch(self._pid)
        except ProcessLookupError:
            self._ending = asyncio.get_running_loop().create_future()
            self._ending.set_result(_UNKNOWN)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._streams.close()
        try:
            await self.kill()
            await self.wait()
        finally:
            self._files.remove()

    @property
    def has_ended(self) -> bool:
        return self._ending.done()

    async def read(self) -> tuple[int, bytes] | None:
        """The next output and its descriptor."""
        return await self._streams.read()

    async def write(self, data: bytes) -> None:
        """Give it input. Raises OSError when it takes none."""
        await self._streams.write(data)

    async def end_input(self) -> None:
        await self._streams.end_input()

    async def resize(self, width: int, height: int) -> None:
        await self._streams.resize(width, height)

    async def wait(self) -> int:
        """Its exit code; 255 when it was never ours to know."""
        return await asyncio.shield(self._ending)

    async def kill(self) -> None:
        # Until its status is taken, its id is given to no other process.
        if not self.has_ended:
            os.kill(self._pid, signal.SIGKILL)
