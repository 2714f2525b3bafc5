"""Task data kept after an exit: output in its pipes, and whether it was killed for memory.

A pipe's content is lost once no process has it open. So that a container's last output survives an
engine upgrade, a process that only sleeps also holds the reading ends open.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar, cast

import msgspec
from google.protobuf.message import DecodeError

from moorage.engine.handlers.adapters.adapter import STDERR, STDOUT, Exit
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.program import Address
from moorage.engine.handlers.adapters.ttrpc import (
    REQUEST,
    RESPONSE,
    ConnectionLostError,
    Frame,
    Framing,
)
from moorage.linux.atomic_file import replace_file
from moorage.linux.cgroups import Cgroups, cgroups_of
from moorage.linux.descriptors import read_tail
from moorage.linux.mounts import current_mounts
from moorage.linux.process import Identity, Process, began
from moorage.linux.trees import remove_tree

_KEEPER = ("sleep", "infinity")


def start_keeper(paths: Mapping[int, Path], search_path: str) -> Identity:
    """Start the process that keeps the output pipes open for reading. Raises OSError."""
    pipes = [
        os.open(paths[number], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (STDOUT, STDERR)
        if number in paths
    ]
    try:
        child = subprocess.Popen(
            _KEEPER,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=pipes,
            env={"PATH": search_path},
            start_new_session=True,
        )
    finally:
        for pipe in pipes:
            os.close(pipe)
    keeper = Process(child.pid, child)
    try:
        return keeper.identity
    finally:
        keeper.close()


async def end_process(identity: Identity | None) -> None:
    """Kill a process with SIGKILL, wait for its end, and reap it if it is our child."""
    process = None if identity is None else Process.find(identity)
    if process is None:
        return
    try:
        process.send(signal.SIGKILL)
        await process.ended()
    finally:
        process.close()
    _reap(process.pid)


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        # Started by an earlier engine; the process that adopted it reaps it.
        return


def memory_file(pid: int) -> str:
    """Return the file that counts OOM kills in a process's cgroup; empty when there is none.

    Source: cgroup-v2 `memory.events`; `memory.oom_control` of version 1 since Linux 4.13.
    """
    try:
        text = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""
    return memory_file_of(text, cgroups_of(current_mounts(), ""))


def memory_file_of(text: str, cgroups: Cgroups) -> str:
    """Return the file that counts OOM kills, given the text of `/proc/PID/cgroup`."""
    lines = text.splitlines()
    for line in lines:
        _number, controllers, place = line.split(":", 2)
        if "memory" in controllers.split(",") and "memory" in cgroups.v1:
            return str(cgroups.v1["memory"] / place.lstrip("/") / "memory.oom_control")
    for line in lines:
        if line.startswith("0::") and cgroups.unified is not None:
            return str(cgroups.unified / line[3:].lstrip("/") / "memory.events")
    return ""


def was_memory_cut(file: str) -> bool:
    """Return whether the kernel has OOM-killed in that cgroup; False if it is unreadable."""
    try:
        text = Path(file).read_text() if file else ""
    except OSError:
        return False
    return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in text.splitlines())


# Shim task record: the state that an engine restores after a restart, beside the task's bundle.
#
# BUNDLE/shim/record.json    the shim's address, and the processes and cgroup of the task
# BUNDLE/shim/exit.json      the task's exit, once it has been collected
# BUNDLE/shim/stdin …        the named pipes
# BUNDLE/log                 the shim's own log

_Kind = TypeVar("_Kind")
# A shim of virtual machines may log what their kernels print.
_LOG_TAIL_BYTES = 64 * 1024


class Record(msgspec.Struct, frozen=True):
    """State of a task.

    `keeper` is the process that keeps the pipes' content; `memory` is the file of the cgroup that
    counts OOM kills, empty when it is unknown.
    """

    address: Address
    shim: Identity | None = None
    keeper: Identity | None = None
    memory: str = ""


class TaskDirectory:
    """Files of one task."""

    def __init__(self, bundle: Path) -> None:
        self.bundle = bundle
        self.path = bundle / "shim"

    def make(self) -> None:
        """Create the directory, and the log that the shim opens. Raises OSError."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        # A regular file, unlike a pipe, needs no reader: the shim's log outlives the engine.
        (self.bundle / "log").touch(mode=0o600)

    def remove(self) -> None:
        """Remove the directory."""
        remove_tree(self.path)

    def record(self) -> Record | None:
        """Return the task's record; None when no task was created here.

        Raises msgspec.DecodeError if damaged.
        """
        return _read(self.path / "record.json", Record)

    def write_record(self, record: Record) -> None:
        _write(self.path / "record.json", record)

    def exit(self) -> Exit | None:
        """Return the task's exit; None while it has not been collected."""
        return _read(self.path / "exit.json", Exit)

    def write_exit(self, how: Exit) -> None:
        _write(self.path / "exit.json", how)

    def complaint(self) -> str:
        """Return the last line of the shim's log, for an error message; at most 500 characters."""
        try:
            tail = read_tail(self.bundle / "log", _LOG_TAIL_BYTES)
        except OSError:
            return ""
        log = tail.decode(errors="replace").strip()
        return log.rpartition("\n")[2][:500]


def with_processes(directory: TaskDirectory, record: Record, shim: int, task: int) -> Record:
    """Add the shim's identity and the task's memory cgroup to a record, write it and return it."""
    ticks = began(shim)
    identity = None if ticks is None else Identity(shim, ticks)
    full = Record(record.address, identity, record.keeper, memory_file(task))
    directory.write_record(full)
    return full


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None


def _write(path: Path, value: msgspec.Struct) -> None:
    # Two waiters for the same exit write it concurrently.
    replace_file(path, msgspec.json.encode(value), writer=secrets.token_hex(4))


# Shim event socket. Only one event is used: out of memory.
#
# Exits and starts are collected with blocking calls, which survive a restart where an event would
# be lost. The socket is needed nonetheless: some shims refuse to start without it, and others
# retry each event for seconds.

_OUT_OF_MEMORY = "/tasks/oom"
_ANSWER = b""
"""A response without status and without payload."""


class ShimEvents:
    """Listening socket for events.

    Shims are answered until `close`; the path remains after that, so that a shim's connection is
    refused at once instead of waiting for the file.
    """

    def __init__(self, server: asyncio.Server, connections: set[asyncio.BaseTransport]) -> None:
        self._server = server
        self._connections = connections

    @classmethod
    async def listen(cls, path: Path, out_of_memory: Callable[[str], None]) -> ShimEvents:
        """Listen at a path; `out_of_memory` is called with the ID of the task. Raises OSError."""
        connections: set[asyncio.BaseTransport] = set()
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: _Reported(out_of_memory, connections), sock=_listen(path)
        )
        return cls(server, connections)

    async def close(self) -> None:
        """Stop listening and close the connections."""
        self._server.close()
        for connection in tuple(self._connections):
            connection.close()
        await self._server.wait_closed()


class _Reported(asyncio.Protocol):
    """Connection of one shim."""

    def __init__(
        self, out_of_memory: Callable[[str], None], connections: set[asyncio.BaseTransport]
    ) -> None:
        self._framing = Framing()
        self._out_of_memory = out_of_memory
        self._connections = connections
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._connections.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._transport is not None:
            self._connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        try:
            for frame in self._framing.feed(data):
                if frame.kind != REQUEST:
                    continue
                if task_id := _oom_task(frame.content):
                    self._out_of_memory(task_id)
                self._transport.write(Frame(frame.stream, RESPONSE, _ANSWER).encode())
        except ConnectionLostError:
            # The peer does not speak ttrpc; no response would help.
            self._transport.close()


def _listen(path: Path) -> socket.socket:
    """Return a socket at a path, accessible to this user only. Raises OSError."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o600)
    return listening


def _oom_task(content: bytes) -> str:
    """Return the ID of the task that ran out of memory; empty for any other event."""
    try:
        request = pb.Request.FromString(content)
        envelope = pb.ForwardRequest.FromString(request.payload).envelope
        if envelope.topic != _OUT_OF_MEMORY:
            return ""
        return pb.OutOfMemory.FromString(envelope.event.value).container_id
    except DecodeError:
        return ""
