"""conmon-monitored adapters: the part that OCI runtimes and gVisor share; all but the creation.

A command in a task is started by the runtime's detached `exec`. The engine is a subreaper, so it
adopts the process and collects its exit code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from moorage.api.logs import Log
from moorage.engine.handlers.adapters.adapter import (
    STDERR,
    STDOUT,
    AdapterError,
    ExecFiles,
    ExecProcess,
    Exit,
    Streams,
    Task,
    TaskNotFoundError,
)
from moorage.engine.handlers.adapters.command_line import CommandLine, Descriptors
from moorage.engine.handlers.adapters.conmon import Conmon, TaskFiles
from moorage.engine.handlers.adapters.process_streams import ConsoleSocket, Pipes, ProcessStreams
from moorage.engine.handlers.adapters.task_cgroup import cgroup_of, remove_task_cgroup
from moorage.linux.cgroups import current_cgroups
from moorage.linux.descriptors import open_regular_file
from moorage.linux.reaper import Reaper
from moorage.linux.trees import make_directories

# CRI log of a container.
#
#     2026-01-02T03:04:05.000000006Z stdout F a whole line
#     2026-01-02T03:04:05.000000007Z stderr P a piece, more follows
#
# Output is written as it arrives, an unfinished line as a partial one, so that a killed engine
# loses no buffered output. Source: CRI logging design; the kubelet's log reader.

PIECE_BYTES = 16 * 1024
_NAMES = {STDOUT: b"stdout", STDERR: b"stderr"}
_MODE = 0o640
_LOG = Log("moorage.engine.handlers.log")


def format_output(data: bytes, descriptor: int, now_ns: int) -> bytes:
    """Return the log lines of one chunk of output; text without its newline is partial (`P`)."""
    seconds, nanoseconds = divmod(now_ns, 1_000_000_000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    head = b"%s.%09dZ %s " % (stamp.encode(), nanoseconds, _NAMES[descriptor])
    *lines, rest = data.split(b"\n")
    parts: list[bytes] = []
    for line in lines:
        tail = line
        while len(tail) > PIECE_BYTES:
            parts += (head, b"P ", tail[:PIECE_BYTES], b"\n")
            tail = tail[PIECE_BYTES:]
        parts += (head, b"F ", tail, b"\n")
    for start in range(0, len(rest), PIECE_BYTES):
        parts += (head, b"P ", rest[start : start + PIECE_BYTES], b"\n")
    return b"".join(parts)


class CriLog:
    """Log file at a path, opened for appending. Creates missing directories."""

    def __init__(self, path: Path, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """Raises OSError when the file cannot be opened."""
        self.path = path
        self._clock_ns = clock_ns
        self._descriptor = _open(path)
        self._unfinished: set[int] = set()
        self._is_failing = False

    @property
    def is_at_line_end(self) -> bool:
        """Return whether the last line of each stream is complete."""
        return not self._unfinished

    def write(self, descriptor: int, data: bytes) -> None:
        """Append output of descriptor 1 or 2.

        Output that cannot be written, as on a full disk, is dropped, and logged once until a write
        succeeds again: the container keeps running.
        """
        if not data:
            return
        if data.endswith(b"\n"):
            self._unfinished.discard(descriptor)
        else:
            self._unfinished.add(descriptor)
        text = memoryview(format_output(data, descriptor, self._clock_ns()))
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                _LOG.error("log not written", file=self.path, why=error.strerror)

    def reopen(self) -> None:
        """Continue in a new file at the path. Raises OSError; the old file then stays open."""
        new = _open(self.path)
        os.close(self._descriptor)
        self._descriptor = new

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _open(path: Path) -> int:
    make_directories(path.parent)
    # A pod with a writable mount of the log directory may have put something else there.
    return open_regular_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode=_MODE)


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
        self.command_line = command_line
        self.conmon = conmon
        self.reaper = reaper
        self.scratch = scratch

    async def wait(self, task: Task) -> Exit:
        """Block until the task has ended.

        A container without its monitor is killed: its output has no reader.
        """
        ended = await self.conmon.wait(task)
        if self.conmon.exit_of(task) is None:
            await self.command_line.delete(task.id)
            if task.bundle.is_dir():
                TaskFiles(task.bundle).exit.write_text(str(ended.code))
        return ended

    async def exit_of(self, task: Task) -> Exit | None:
        return self.conmon.exit_of(task)

    async def is_alive(self, task: Task) -> bool:
        return self.conmon.exit_of(task) is None and self.conmon.is_watched(task)

    async def kill(self, task: Task, number: signal.Signals) -> None:
        """Send a signal with the runtime's `kill`; no-op when the task has ended."""
        try:
            await self.command_line.run("kill", task.id, str(int(number)))
        except TaskNotFoundError:
            return

    async def attach(self, task: Task) -> Streams:
        return self.conmon.attach(task)

    async def resize(self, task: Task, width: int, height: int) -> None:
        self.conmon.resize(task, width, height)

    async def reopen_log(self, task: Task) -> None:
        await self.conmon.reopen_log(task)

    async def close(self) -> None:
        """No-op: nothing is kept open between calls."""

    async def exec(
        self, task: Task, process: Mapping[str, Any], *, has_stdin: bool, has_terminal: bool
    ) -> ExecProcess:
        """Start a process with the runtime's `exec`. Raises AdapterError."""
        files = ExecFiles.write(self.scratch, process, has_terminal=has_terminal)
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
        if not TaskFiles(task.bundle).pid.exists() and self.conmon.exit_of(task) is None:
            await self.conmon.abandon(task)
            # The cgroup may exist although the killed runtime has not recorded the container.
            await remove_task_cgroup(current_cgroups(), cgroup_of(task))

    def _started(self, task: Task, files: ExecFiles, streams: ProcessStreams) -> StartedProcess:
        """Return the process that the runtime has left running. Raises AdapterError."""
        del task
        return StartedProcess(files, streams, self.reaper)

    async def _exec(
        self,
        task: Task,
        files: ExecFiles,
        options: Sequence[str],
        streams: Descriptors | None = None,
    ) -> None:
        arguments = ("--detach", "--process", str(files.process), "--pid-file", str(files.pid_file))
        await self.command_line.run("exec", *arguments, *options, task.id, streams=streams)


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
