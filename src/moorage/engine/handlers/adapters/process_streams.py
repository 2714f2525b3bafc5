"""Standard streams of a process that the engine started: three pipes, or one terminal.

Descriptors are the engine's and non-blocking. Output is read only on demand, so a process without a
reader blocks. Source: pipe(7), pty(7), ioctl_tty(2).
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from moorage.engine.handlers.adapters.adapter import STDERR, STDOUT

_CHUNK_BYTES = 64 * 1024
_PATIENCE_S = 10.0


class ProcessStreams(Protocol):
    """Common interface of both kinds of streams. Once closed, they cannot be used again."""

    async def read(self) -> tuple[int, bytes] | None:
        """Block until there is output; return it with its descriptor, or None at the end."""

    async def write(self, data: bytes) -> None:
        """Write input. Raises OSError when there is no reader."""

    async def end_input(self) -> None:
        """Signal the end of input."""

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal; no-op without one."""

    def close(self) -> None:
        """Close the descriptors."""


@dataclass(frozen=True, slots=True)
class ChildEnds:
    """Descriptors that a child process gets as its standard input, output and error."""

    stdin: int
    stdout: int
    stderr: int

    def close(self) -> None:
        """Close each descriptor once."""
        for descriptor in {self.stdin, self.stdout, self.stderr}:
            os.close(descriptor)


class Pipes:
    """Separate pipes for output and error, and one for input if there is one."""

    def __init__(self, stdin: int | None, stdout: int, stderr: int) -> None:
        self._stdin = stdin
        self._open = {stdout: STDOUT, stderr: STDERR}
        for descriptor in filter(None, (stdin, stdout, stderr)):
            os.set_blocking(descriptor, False)

    @classmethod
    def make(cls, *, has_stdin: bool) -> tuple[Self, ChildEnds]:
        """Create the pipes and return both ends; close the child's once it has been started."""
        output, child_output = os.pipe2(os.O_CLOEXEC)
        error, child_error = os.pipe2(os.O_CLOEXEC)
        child_input, stdin = os.pipe2(os.O_CLOEXEC)
        ends = ChildEnds(child_input, child_output, child_error)
        if has_stdin:
            return cls(stdin, output, error), ends
        # A closed pipe instead of /dev/null: crun changes the owner of the streams to the
        # container's user, and that device is the host's.
        os.close(stdin)
        return cls(None, output, error), ends

    async def read(self) -> tuple[int, bytes] | None:
        """Block until there is output.

        Returns it with its descriptor, or None once both pipes have ended.
        """
        while self._open:
            for source in await _readable(tuple(self._open)):
                piece = os.read(source, _CHUNK_BYTES)
                if piece:
                    return self._open[source], piece
                del self._open[source]
                os.close(source)
        return None

    async def write(self, data: bytes) -> None:
        """Write input. Raises BrokenPipeError when there is no reader."""
        if self._stdin is None:
            raise BrokenPipeError(errno.EPIPE, "the process has no input")
        await _write(self._stdin, data)

    async def end_input(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    async def resize(self, width: int, height: int) -> None:
        """No-op: there is no terminal."""

    def close(self) -> None:
        """Close this side of every pipe."""
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None
        for source in self._open:
            os.close(source)
        self._open.clear()


class Terminal:
    """Controlling side of a pseudoterminal: all output has the descriptor of standard output."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)

    async def read(self) -> tuple[int, bytes] | None:
        """Block until there is output; return None once no process has the terminal open."""
        if self._descriptor < 0:
            return None
        await _readable((self._descriptor,))
        try:
            piece = os.read(self._descriptor, _CHUNK_BYTES)
        except OSError as error:
            # EIO: the last process has closed the terminal.
            if error.errno != errno.EIO:
                raise
            return None
        return (STDOUT, piece) if piece else None

    async def write(self, data: bytes) -> None:
        """Write input. Raises OSError when the terminal is closed."""
        await _write(self._descriptor, data)

    async def end_input(self) -> None:
        """No-op: a terminal's input ends with the end-of-file character that the user types."""

    async def resize(self, width: int, height: int) -> None:
        size = struct.pack("HHHH", height & 0xFFFF, width & 0xFFFF, 0, 0)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class ConsoleSocket:
    """Socket over which a runtime passes the terminal it created. `async with` removes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.setblocking(False)

    async def __aenter__(self) -> Self:
        try:
            self._listener.bind(str(self.path))
            self._listener.listen(1)
        except BaseException:
            self._listener.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.path.unlink(missing_ok=True)

    async def receive(self, within_s: float = _PATIENCE_S) -> Terminal:
        """Receive the terminal. Raises OSError or TimeoutError when none is passed."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(within_s):
            connection, _ = await loop.sock_accept(self._listener)
            with connection:
                await _readable((connection.fileno(),))
                _, descriptors, _, _ = socket.recv_fds(connection, 4096, 1)
        if not descriptors:
            raise OSError(errno.EPROTO, "the runtime handed over no terminal")
        os.set_inheritable(descriptors[0], False)
        return Terminal(descriptors[0])


async def _readable(sources: Sequence[int]) -> tuple[int, ...]:
    """Block until at least one of the descriptors is readable; return the readable ones."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    readable: list[int] = []

    def note(source: int) -> None:
        readable.append(source)
        loop.remove_reader(source)
        if not ready.done():
            ready.set_result(None)

    for source in sources:
        loop.add_reader(source, note, source)
    try:
        await ready
    finally:
        for source in sources:
            loop.remove_reader(source)
    return tuple(readable)


async def _write(target: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
            continue
        except BlockingIOError:
            ready: asyncio.Future[None] = loop.create_future()
        loop.add_writer(target, _resolve, ready)
        try:
            await ready
        finally:
            loop.remove_writer(target)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
