"""conmon-monitored adapters: the part that OCI runtimes and gVisor share; all but the creation.

A command in a task is started by the runtime's detached `exec`. The engine is a subreaper, so it
adopts the process and collects its exit code.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from moorage.engine.handlers.adapters.adapter import (
    AdapterError,
    ExecProcess,
    Exit,
    Streams,
    Task,
    TaskNotFoundError,
)
from moorage.engine.handlers.adapters.command_line import CommandLine, Descriptors
from moorage.engine.handlers.adapters.conmon import Conmon, TaskFiles
from moorage.engine.handlers.adapters.exec_files import ExecFiles
from moorage.engine.handlers.adapters.process_streams import ConsoleSocket, Pipes, ProcessStreams
from moorage.engine.handlers.adapters.task_cgroup import cgroup_of, remove_task_cgroup
from moorage.linux.cgroups import current_cgroups
from moorage.linux.reaper import Reaper

_UNKNOWN = 255


class MonitoredAdapter:
    """The methods of `Adapter` that conmon and the runtimes' common commands implement."""

    mounts_rootfs = False

    terminal_options: ClassVar[tuple[str, ...]] = ("--tty",)
    """Options of the runtime's `exec` for a terminal, besides its console socket."""

    def __init__(
        self, command_line: CommandLine, conmon: Conmon, reaper: Reaper, scratch: Path
    ) -> None:
        """`scratch` is a directory for short-lived files; its path must be short, for sockets."""
        self._command_line = command_line
        self._conmon = conmon
        self._reaper = reaper
        self._scratch = scratch

    async def wait(self, task: Task) -> Exit:
        """Block until the task has ended.

        A container without its monitor is killed: its output has no reader.
        """
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

    async def kill(self, task: Task, number: signal.Signals) -> None:
        """Send a signal with the runtime's `kill`; no-op when the task has ended."""
        try:
            await self._command_line.run("kill", task.id, str(int(number)))
        except TaskNotFoundError:
            return

    async def attach(self, task: Task) -> Streams:
        return self._conmon.attach(task)

    async def resize(self, task: Task, width: int, height: int) -> None:
        self._conmon.resize(task, width, height)

    async def reopen_log(self, task: Task) -> None:
        await self._conmon.reopen_log(task)

    async def close(self) -> None:
        """No-op: nothing is kept open between calls."""

    async def exec(
        self, task: Task, process: Mapping[str, Any], *, has_stdin: bool, has_terminal: bool
    ) -> ExecProcess:
        """Start a process with the runtime's `exec`. Raises AdapterError."""
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
        """Kill a `create` that was interrupted or does not return, with all that it started."""
        if not TaskFiles(task.bundle).pid.exists() and self._conmon.exit_of(task) is None:
            await self._conmon.abandon(task)
            # The cgroup may exist although the killed runtime has not recorded the container.
            await remove_task_cgroup(current_cgroups(), cgroup_of(task))

    def _started(self, task: Task, files: ExecFiles, streams: ProcessStreams) -> StartedProcess:
        """Return the process that the runtime has left running. Raises AdapterError."""
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
    """A process that a runtime has left running, as an orphan that the engine adopts."""

    def __init__(self, files: ExecFiles, streams: ProcessStreams, reaper: Reaper) -> None:
        """Raises AdapterError when the runtime did not write its process ID."""
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
        """Block until there is output; return it with its descriptor, or None at the end."""
        return await self._streams.read()

    async def write(self, data: bytes) -> None:
        """Write input. Raises OSError when the process takes none."""
        await self._streams.write(data)

    async def end_input(self) -> None:
        await self._streams.end_input()

    async def resize(self, width: int, height: int) -> None:
        await self._streams.resize(width, height)

    async def wait(self) -> int:
        """Block until the process has ended.

        Returns its exit code, 255 if it could not be collected.
        """
        return await asyncio.shield(self._ending)

    async def kill(self) -> None:
        """Send SIGKILL; no-op when the process has ended."""
        # The PID cannot be reused until its exit status is collected.
        if not self.has_ended:
            os.kill(self._pid, signal.SIGKILL)
