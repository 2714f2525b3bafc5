"""conmon: the monitor process of a container, which lives as long as the container.

It runs the runtime's `create`, holds the container's streams, writes the log in the CRI format,
serves attached clients, and writes the exit code to a file. None of that needs the engine, so an
engine that was killed or replaced finds everything in the task's bundle:

    pidfile     the container's first process        exit      its exit code, once it has ended
    monitor     conmon's own process                 oom       exists if memory ran out
    attach      socket: packets of a byte (2 stdout, 3 stderr) and output; accepts raw input
    ctl         pipe: `1 H W` resizes the terminal, `2 0 0` reopens the log

Source: conmon's manual page and measured behaviour of version 2.1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from moorage.api.logs import Log
from moorage.engine.handlers.adapters.adapter import (
    STDERR,
    STDOUT,
    AdapterError,
    Exit,
    Task,
    TaskNotFoundError,
)
from moorage.engine.handlers.adapters.command_line import logged_error, one_line
from moorage.linux.child import Child, until_readable
from moorage.linux.process import Process, arguments, descendants, held, processes_of
from moorage.linux.trees import make_directories

log = Log(__name__)

_ANSWER_BYTES = 64 * 1024
_PACKET_BYTES = 64 * 1024
_INPUT_BYTES = 8 * 1024
_ERRORS = {2: STDOUT, 3: STDERR}
_KILLED = 128 + signal.SIGKILL
_REOPEN_DEADLINE_S = 5.0
_POLL_S = 0.005


class _Answer(msgspec.Struct, frozen=True):
    """conmon's answer after the runtime's `create`: a process ID, or -1 and an error message."""

    data: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """Paths of conmon's files of one task."""

    bundle: Path

    @property
    def pid(self) -> Path:
        """File with the process ID of the container's first process."""
        return self.bundle / "pidfile"

    @property
    def monitor(self) -> Path:
        """File with conmon's process ID."""
        return self.bundle / "monitor"

    @property
    def exit(self) -> Path:
        """File with the exit code, once the container has ended."""
        return self.bundle / "exit"

    @property
    def out_of_memory(self) -> Path:
        """File that exists if the container ran out of memory."""
        return self.bundle / "oom"

    @property
    def control(self) -> Path:
        """FIFO for resize and log reopen commands."""
        return self.bundle / "ctl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conmon:
    """conmon's program, and the directory of exit files besides those in the bundles."""

    program: Path
    exits: Path
    create_deadline_s: float = 60.0

    async def create(
        self,
        task: Task,
        runtime: Path,
        runtime_arguments: Sequence[str],
        create_arguments: Sequence[str] = (),
        *,
        has_systemd_cgroups: bool = False,
        place: Callable[[int], None] | None = None,
    ) -> int:
        """Run the runtime's `create` under a new conmon; return the container's process ID.

        `place` is called with conmon's process ID before it starts anything. Raises AdapterError
        with the runtime's message, and OSError from `place`; nothing is left running then.
        """
        files = TaskFiles(task.bundle)
        if task.log is not None:
            make_directories(task.log.parent)
        argv = self._argv(task, files, runtime)
        argv += [f"--runtime-arg={argument}" for argument in runtime_arguments]
        argv += create_arguments  # conmon has options of the same names
        argv += ["-s"] if has_systemd_cgroups else []
        log.debug("runtime command", program=runtime, words=f"create {task.id}")
        answers, answering = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.set_blocking(answering, True)
            try:
                launcher = await _launch(argv, task.bundle, answering, place)
            except OSError as error:
                raise AdapterError(f"{self.program}: {error.strerror or error}") from error
            finally:
                os.close(answering)
            try:
                async with asyncio.timeout(self.create_deadline_s):
                    reply = await _line(answers)
            except TimeoutError:
                raise AdapterError(
                    f"{runtime} did not create the container within {self.create_deadline_s:g} s"
                ) from None
            finally:
                # conmon daemonizes; the child started here is only its launcher.
                await launcher.end()
                launcher.close()
        except BaseException:
            await self.abandon(task)
            raise
        finally:
            os.close(answers)
        return self._pid_in(reply, runtime)

    async def wait(self, task: Task) -> Exit:
        """Block until conmon has ended, and return the exit it recorded.

        Returns 137 (SIGKILL) and the current time if it recorded none.
        """
        files = TaskFiles(task.bundle)
        monitor = hold(files.monitor, task.id)
        if monitor is not None:
            try:
                await until_readable(monitor)
            finally:
                os.close(monitor)
        return self.exit_of(task) or Exit(_KILLED, time.time_ns())

    def exit_of(self, task: Task) -> Exit | None:
        """Return the exit that conmon recorded; None when it has recorded none.

        Finish time is the exit file's mtime.
        """
        files = TaskFiles(task.bundle)
        try:
            text = files.exit.read_text()
            ended = files.exit.stat()
        except FileNotFoundError:
            return None
        # conmon writes into an existing file, which may be empty for a moment.
        if not text.strip().lstrip("-").isdecimal():
            return None
        return Exit(int(text) & 0xFF, ended.st_mtime_ns, files.out_of_memory.exists())

    def is_watched(self, task: Task) -> bool:
        """Return whether the task's conmon is running."""
        monitor = hold(TaskFiles(task.bundle).monitor, task.id)
        if monitor is None:
            return False
        os.close(monitor)
        return True

    async def abandon(self, task: Task) -> None:
        """Kill the task's monitors and their descendants, including a `create` in progress.

        They are found by their arguments, as an interrupted conmon has not written its process ID
        yet.
        """
        processes = await asyncio.to_thread(self._held, task)
        try:
            for process in processes:
                process.send(signal.SIGKILL)
            for process in processes:
                await process.ended()
        finally:
            for process in processes:
                process.close()

    def forget(self, task: Task) -> None:
        """Remove the task's files outside its bundle."""
        (self.exits / task.id).unlink(missing_ok=True)

    async def reopen_log(self, task: Task) -> None:
        """Have conmon reopen the log at its path; blocks until the file exists.

        Raises AdapterError.
        """
        _send_control(TaskFiles(task.bundle), "2 0 0\n")
        if task.log is None:
            return
        try:
            async with asyncio.timeout(_REOPEN_DEADLINE_S):
                # conmon sends no reply; the new file is the only sign.
                while not task.log.exists():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AdapterError(f"the log {task.log} was not reopened") from None

    def resize(self, task: Task, width: int, height: int) -> None:
        """Set the size of the task's terminal. Raises AdapterError."""
        _send_control(TaskFiles(task.bundle), f"1 {height} {width}\n")

    def attach(self, task: Task) -> AttachedStreams:
        """Connect to the task's streams.

        Raises TaskNotFoundError when conmon does not serve them.
        """
        return AttachedStreams.connect(self, task)

    def _held(self, task: Task) -> list[Process]:
        return held(descendants(processes_of(self.program, ("-c", task.id))))

    def _argv(self, task: Task, files: TaskFiles, runtime: Path) -> list[str]:
        argv = [str(self.program), "--api-version", "1", "-c", task.id, "-u", task.id]
        argv += ["-n", task.id[:12], "-r", str(runtime), "-b", str(task.bundle)]
        argv += ["-p", str(files.pid), "-P", str(files.monitor)]
        argv += ["-l", "none:" if task.log is None else f"k8s-file:{task.log}"]
        argv += ["--exit-dir", str(self.exits), "--persist-dir", str(task.bundle)]
        argv += ["--socket-dir-path", str(task.bundle), "--full-attach", "--no-sync-log"]
        argv += ["--log-level", "error"]
        if task.has_terminal:
            argv.append("-t")
        if task.has_stdin:
            argv.append("-i")
            if not task.is_stdin_once:
                argv.append("--leave-stdin-open")
        return argv

    def _pid_in(self, reply: bytes, runtime: Path) -> int:
        if not reply:
            raise AdapterError(f"{self.program} exited before it started {runtime}")
        try:
            answer = msgspec.json.decode(reply, type=_Answer)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise AdapterError(
                f"{self.program} wrote an invalid reply, {reply[:200]!r}: {error}"
            ) from error
        if answer.data <= 0:
            raise AdapterError(one_line(logged_error(answer.message)) or f"{runtime} create failed")
        return answer.data


class AttachedStreams:
    """Streams of a task, through its conmon's socket."""

    def __init__(self, conmon: Conmon, task: Task, connection: socket.socket) -> None:
        self.conmon = conmon
        self._task = task
        self._socket = connection
        self._has_input_ended = False

    @classmethod
    def connect(cls, conmon: Conmon, task: Task) -> Self:
        """Connect to the task's streams.

        Raises TaskNotFoundError when conmon does not serve them.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        # A Unix socket's path is limited to 107 bytes; the one through /proc/self/fd is short.
        directory = os.open(task.bundle, os.O_PATH | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{directory}/attach")
        except OSError as error:
            connection.close()
            raise TaskNotFoundError(
                f"the streams of container {task.id} are not served: {error.strerror}"
            ) from error
        finally:
            os.close(directory)
        return cls(conmon, task, connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()

    async def read(self) -> tuple[int, bytes] | None:
        """Block until there is output.

        Returns it with its descriptor, or None when the container has ended.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                packet = await loop.sock_recv(self._socket, _PACKET_BYTES)
            except ConnectionResetError:
                return None
            if not packet:
                return None
            descriptor = _ERRORS.get(packet[0])
            if descriptor is not None and len(packet) > 1:
                return descriptor, packet[1:]

    async def write(self, data: bytes) -> None:
        """Write input to the container. Raises OSError when it takes none."""
        loop = asyncio.get_running_loop()
        for start in range(0, len(data), _INPUT_BYTES):
            await loop.sock_sendall(self._socket, data[start : start + _INPUT_BYTES])

    async def end_input(self) -> None:
        """Signal the end of input; with `is_stdin_once` the container's input ends."""
        if not self._has_input_ended:
            self._has_input_ended = True
            self._socket.shutdown(socket.SHUT_WR)

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal; no-op without one."""
        if self._task.has_terminal:
            self.conmon.resize(self._task, width, height)


async def _launch(
    argv: Sequence[str], bundle: Path, answering: int, place: Callable[[int], None] | None
) -> Child:
    """Start conmon; it waits for a byte on a pipe before it starts anything. Raises OSError."""
    waiting, starting = os.pipe2(os.O_CLOEXEC)
    try:
        environment = {
            "_OCI_SYNCPIPE": str(answering),
            "_OCI_STARTPIPE": str(waiting),
            "PATH": os.environ.get("PATH", os.defpath),
        }
        launcher = Child(
            argv,
            environment=environment,
            passing=(answering, waiting),
            # conmon also creates an `oom` file in its working directory.
            directory=bundle,
        )
        try:
            if place is not None:
                place(launcher.pid)
            os.write(starting, b"\0")
        except BaseException:
            await launcher.end()
            launcher.close()
            raise
        return launcher
    finally:
        os.close(waiting)
        os.close(starting)


def monitor_pid(bundle: Path) -> int | None:
    """Return the process ID of a task's conmon; None if there is none or it has ended.

    Raises OSError other than a missing file.
    """
    files = TaskFiles(bundle)
    monitor = hold(files.monitor, bundle.name)
    if monitor is None:
        return None
    os.close(monitor)
    return int(files.monitor.read_text())


def hold(file: Path, argument: str) -> int | None:
    """Return a pidfd of the process whose ID is in a file; None without one with `argument`.

    The argument distinguishes it from another process that reuses the PID.
    """
    try:
        pid = int(file.read_text())
        pidfd = os.pidfd_open(pid)
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return None
    argv = arguments(pid)
    is_zombie = argv == []
    if argument and not is_zombie and argument not in (argv or ()):
        os.close(pidfd)
        return None
    return pidfd


def _send_control(files: TaskFiles, order: str) -> None:
    try:
        pipe = os.open(files.control, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise TaskNotFoundError(
            f"the monitor of {files.bundle.name} does not listen: {error.strerror}"
        ) from error
    try:
        os.write(pipe, order.encode())
    finally:
        os.close(pipe)


async def _line(descriptor: int) -> bytes:
    """Read a pipe up to a newline or its end."""
    received = bytearray()
    while b"\n" not in received and len(received) < _ANSWER_BYTES:
        await until_readable(descriptor)
        piece = os.read(descriptor, _ANSWER_BYTES)
        if not piece:
            break
        received += piece
    return bytes(received)
