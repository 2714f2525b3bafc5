"""conmon: the small process that stays with a container for as long as it lives.

It starts the runtime's `create`, keeps the container's streams, writes the log in the CRI's
format, serves whoever attaches, and leaves the exit code in a file. Nothing of that needs the
engine, so an engine that is killed or replaced finds all of it. In a task's bundle:

    pidfile     the container's first process        exit      its code, once it has ended
    monitor     conmon's own process                 oom       there when memory ran out
    attach      socket: packets of a byte (2 stdout, 3 stderr) and output; takes raw input
    ctl         pipe: `1 H W` resizes the terminal, `2 0 0` opens the log anew

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

from moorage.handlers.adapters.adapter import (
    STDERR,
    STDOUT,
    AdapterError,
    Exit,
    Task,
    TaskNotFoundError,
)
from moorage.handlers.adapters.command_line import logged_error, one_line
from moorage.linux.child import Child, until_readable
from moorage.linux.process import Process
from moorage.linux.process_tree import held, processes_of, with_descendants
from moorage.linux.trees import make_directories

CREATE_DEADLINE_S = 60.0
_ANSWER_BYTES = 64 * 1024
_PACKET_BYTES = 64 * 1024
_INPUT_BYTES = 8 * 1024
_ERRORS = {2: STDOUT, 3: STDERR}
_KILLED = 128 + signal.SIGKILL
_REOPEN_DEADLINE_S = 5.0
_POLL_S = 0.005


class _Answer(msgspec.Struct, frozen=True):
    """What conmon says once the runtime's `create` is done: a process id, or -1 and why."""

    data: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """Where conmon keeps its things about one task."""

    bundle: Path

    @property
    def pid(self) -> Path:
        return self.bundle / "pidfile"

    @property
    def monitor(self) -> Path:
        return self.bundle / "monitor"

    @property
    def exit(self) -> Path:
        return self.bundle / "exit"

    @property
    def out_of_memory(self) -> Path:
        return self.bundle / "oom"

    @property
    def control(self) -> Path:
        return self.bundle / "ctl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conmon:
    """The program, and where its exit files go besides the bundles' own."""

    program: Path
    exits: Path

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
        """Run the runtime's `create` under a new conmon; the container's process id.

        `place` is called with conmon's process id before it has started anything. Raises
        AdapterError with the runtime's words, and OSError from `place`; nothing runs then.
        """
        files = TaskFiles(task.bundle)
        if task.log is not None:
            make_directories(task.log.parent)
        argv = self._argv(task, files, runtime)
        argv += [f"--runtime-arg={each}" for each in runtime_arguments]
        argv += create_arguments  # conmon has options of the same names
        argv += ["-s"] if has_systemd_cgroups else []
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
                async with asyncio.timeout(CREATE_DEADLINE_S):
                    said = await _line(answers)
            except TimeoutError:
                raise AdapterError(
                    f"{runtime} did not create the container within {CREATE_DEADLINE_S:g} s"
                ) from None
            finally:
                # conmon forks away; what was started is only its launcher.
                await launcher.end()
                launcher.close()
        except BaseException:
            await self.abandon(task)
            raise
        finally:
            os.close(answers)
        return self._pid_in(said, runtime)

    async def wait(self, task: Task) -> Exit:
        """Return when conmon has ended, with what it recorded."""
        files = TaskFiles(task.bundle)
        monitor = hold(files.monitor, task.id)
        if monitor is not None:
            try:
                await until_readable(monitor)
            finally:
                os.close(monitor)
        return self.exit_of(task) or Exit(_KILLED, time.time_ns())

    def exit_of(self, task: Task) -> Exit | None:
        """What conmon recorded of the task's end; None when it has recorded nothing."""
        files = TaskFiles(task.bundle)
        try:
            text = files.exit.read_text()
            ended = files.exit.stat()
        except FileNotFoundError:
            return None
        # The code is written into a file that is there already, so it may be empty for a moment.
        if not text.strip().lstrip("-").isdecimal():
            return None
        return Exit(int(text) & 0xFF, ended.st_mtime_ns, files.out_of_memory.exists())

    def is_watched(self, task: Task) -> bool:
        """Whether the task's conmon lives."""
        monitor = hold(TaskFiles(task.bundle).monitor, task.id)
        if monitor is None:
            return False
        os.close(monitor)
        return True

    async def abandon(self, task: Task) -> None:
        """Kill the task's monitors and all they started: a `create` that does not come back too.

        They are found by their arguments, as one that was cut short has not written its id yet.
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
        """Remove what is kept of the task outside its bundle."""
        (self.exits / task.id).unlink(missing_ok=True)

    async def reopen_log(self, task: Task) -> None:
        """Have the log's path opened anew; returns when it is there. Raises AdapterError."""
        _tell(TaskFiles(task.bundle), "2 0 0\n")
        if task.log is None:
            return
        try:
            async with asyncio.timeout(_REOPEN_DEADLINE_S):
                # conmon answers nothing; what can be seen is the new file.
                while not task.log.exists():  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise AdapterError(f"the log {task.log} was not opened anew") from None

    def resize(self, task: Task, width: int, height: int) -> None:
        """Change the size of the task's terminal. Raises AdapterError."""
        _tell(TaskFiles(task.bundle), f"1 {height} {width}\n")

    def attach(self, task: Task) -> AttachedStreams:
        """Connect to the task's streams. Raises TaskNotFoundError when nobody serves them."""
        return AttachedStreams.connect(self, task)

    def _held(self, task: Task) -> list[Process]:
        monitors = processes_of(self.program, ("-c", task.id))
        return held([pid for monitor in monitors for pid in with_descendants(monitor)])

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

    def _pid_in(self, said: bytes, runtime: Path) -> int:
        if not said:
            raise AdapterError(f"{self.program} ended before it had started {runtime}")
        try:
            answer = msgspec.json.decode(said, type=_Answer)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise AdapterError(f"{self.program} said {said[:200]!r}: {error}") from error
        if answer.data <= 0:
            raise AdapterError(one_line(logged_error(answer.message)) or f"{runtime} create failed")
        return answer.data


class AttachedStreams:
    """The streams of a task, by its conmon's socket."""

    def __init__(self, conmon: Conmon, task: Task, connection: socket.socket) -> None:
        self._conmon = conmon
        self._task = task
        self._socket = connection
        self._has_input_ended = False

    @classmethod
    def connect(cls, conmon: Conmon, task: Task) -> Self:
        """Raises TaskNotFoundError when nobody serves the streams."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        # A socket's path must be short; that of an open directory is.
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
        """The next output and its descriptor; None when the container has ended."""
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
        """Give the container input. Raises OSError when it takes none any more."""
        loop = asyncio.get_running_loop()
        for start in range(0, len(data), _INPUT_BYTES):
            await loop.sock_sendall(self._socket, data[start : start + _INPUT_BYTES])

    async def end_input(self) -> None:
        """Say that no more input comes; with `is_stdin_once` the container's input ends."""
        if not self._has_input_ended:
            self._has_input_ended = True
            self._socket.shutdown(socket.SHUT_WR)

    async def resize(self, width: int, height: int) -> None:
        """Change the size of the terminal, if there is one."""
        if self._task.has_terminal:
            self._conmon.resize(self._task, width, height)


async def _launch(
    argv: Sequence[str], bundle: Path, answering: int, place: Callable[[int], None] | None
) -> Child:
    """Start conmon; it waits for a byte before it starts anything. Raises OSError."""
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
            # It tells of a lack of memory in a file of its working directory too.
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
    """Return the id of the conmon of the task in a bundle; None if there is none, or it has ended.

    Raises OSError other than a missing file.
    """
    files = TaskFiles(bundle)
    monitor = hold(files.monitor, bundle.name)
    if monitor is None:
        return None
    os.close(monitor)
    return int(files.monitor.read_text())


def hold(file: Path, argument: str) -> int | None:
    """A pidfd of the process whose id is in a file and that has that argument; None without one.

    The argument tells it from another process that was given the same id.
    """
    try:
        pid = int(file.read_text())
        pidfd = os.pidfd_open(pid)
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return None
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        words = []
    if argument and words != [""] and argument not in words:
        os.close(pidfd)
        return None
    return pidfd


def _tell(files: TaskFiles, order: str) -> None:
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
    """What is written to a pipe up to the end of a line, or of the pipe."""
    received = bytearray()
    while b"\n" not in received and len(received) < _ANSWER_BYTES:
        await until_readable(descriptor)
        piece = os.read(descriptor, _ANSWER_BYTES)
        if not piece:
            break
        received += piece
    return bytes(received)
