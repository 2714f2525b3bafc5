"""Named pipes of a shim's processes: read output for the log and for attached clients.

    shim ──fifo──▶ ProcessOutput ──▶ CRI log
                               └──▶ OutputQueue of each who attached
    attached ──fifo──▶ shim

A pipe holds the unread output, so a slow reader blocks the process instead of filling memory.
Output for a log is also read at a limited rate: a process that floods its log blocks in write(2)
instead of filling the disk. Source: fifo(7), pipe(7); poll(2) reports no end before a first writer
has opened it.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from moorage.engine.handlers.adapters.adapter import STDERR, STDOUT
from moorage.engine.handlers.adapters.monitored import CriLog

# Process input of a shim, through a named pipe (FIFO) that the shim reads.
#
# Source: fifo(7): open(2) for writing fails with ENXIO, or blocks, while the FIFO has no reader.

_FLAGS = os.O_WRONLY | os.O_CLOEXEC
_READER_S = 2.0
"""The shim opens its end concurrently with its reply to Start, so it may be late."""


class ProcessInput:
    """Input pipe of a process, opened at the first write."""

    def __init__(self, path: Path, reader_s: float = _READER_S) -> None:
        self._path = path
        self._reader_s = reader_s
        self._pipe: int | None = None

    async def write(self, data: bytes) -> None:
        """Write input; blocks while the pipe is full. Raises OSError when there is no reader."""
        if self._pipe is None:
            self._pipe = await _open(self._path, self._reader_s)
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._pipe, rest) :]
            except BlockingIOError:
                await _writable(self._pipe)

    def close(self) -> None:
        """Close the pipe. The process sees the end of its input only after the shim's CloseIO."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


async def _open(path: Path, within_s: float) -> int:
    """Open the writing end. Raises OSError when no reader appears in time."""
    try:
        return os.open(path, _FLAGS | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    # Held by descriptor instead of by name: the task may be deleted during the wait.
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return await _open_when_read(Path(f"/proc/self/fd/{handle}"), path, within_s)
    finally:
        os.close(handle)


async def _open_when_read(handle: Path, path: Path, within_s: float) -> int:
    opening = asyncio.ensure_future(asyncio.to_thread(os.open, handle, _FLAGS))
    has_reader = False
    try:
        await asyncio.wait({opening}, timeout=within_s)
        has_reader = opening.done()
    finally:
        if not opening.done():
            # A thread blocked in open(2) cannot be cancelled; opening a reader releases it.
            reader = os.open(handle, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            await asyncio.wait({opening})
            os.close(reader)
        pipe = opening.result()
        if not has_reader:
            os.close(pipe)
    if not has_reader:
        raise OSError(errno.ENXIO, "no process reads its input", str(path))
    os.set_blocking(pipe, False)
    return pipe


async def _writable(pipe: int) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_writer(pipe, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_writer(pipe)


_CHUNK_BYTES = 64 * 1024
_QUEUE_BYTES = 256 * 1024
_REOPEN_S = 0.5
LOG_BYTES_PER_S = 16 * 1024 * 1024
"""Output read for the log of one process, in bytes per second."""
_LOG_PERIOD_S = 1.0
ATTACHED_PATIENCE_S = 10.0


class OutputQueue:
    """Output queued for one reader, in order, with its descriptors."""

    def __init__(self, room: Callable[[], None]) -> None:
        """`room` is called when a full queue has room again."""
        self._room = room
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._has_ended = False
        self._arrived = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Return whether the queue holds at least 256 KiB, and has not ended."""
        return self._size >= _QUEUE_BYTES and not self._has_ended

    def feed(self, descriptor: int, data: bytes) -> None:
        """Add output; dropped after the end."""
        if not self._has_ended:
            self._pieces.append((descriptor, data))
            self._size += len(data)
            self._arrived.set()

    def end(self) -> None:
        """Mark the end of the output."""
        self._has_ended = True
        self._arrived.set()

    async def read(self) -> tuple[int, bytes] | None:
        """Block until there is output, and return it; None at the end.

        No deadline: a process may be silent for days.
        """
        while not self._pieces:
            if self._has_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        was_full = self.is_full
        descriptor, data = self._pieces.popleft()
        self._size -= len(data)
        if was_full and not self.is_full:
            self._room()
        return descriptor, data


class ProcessOutput:
    """Output and error of a process, read from their pipes while every attached reader keeps up."""

    def __init__(
        self,
        paths: Mapping[int, Path],
        log: CriLog | None,
        *,
        log_bytes_per_s: int = LOG_BYTES_PER_S,
        attached_patience_s: float = ATTACHED_PATIENCE_S,
    ) -> None:
        """`paths` are the pipes by descriptor. Raises OSError."""
        self._log_bytes_per_s = log_bytes_per_s
        self._attached_patience_s = attached_patience_s
        self._log = log
        self._open: dict[int, int] = {}
        self._queues: list[OutputQueue] = []
        self._is_reading = False
        self._late: asyncio.TimerHandle | None = None
        self._period_start_s = 0.0
        self._period_bytes = 0
        self._rate_limited: asyncio.TimerHandle | None = None
        self._reopening: asyncio.Event | None = None
        self.ended = asyncio.Event()
        """Set once every writer has closed and all output has been read."""
        try:
            for descriptor, path in paths.items():
                self._open[descriptor] = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except BaseException:
            self.close()
            raise
        self._resume()

    async def finish(self, patience_s: float) -> None:
        """Read to the end, for a process that has ended: its writers have closed, or will shortly.

        Blocks for at most `patience_s` seconds on output of a child process that is still running.
        """
        for descriptor, pipe in tuple(self._open.items()):
            # poll(2) reports no end for writers that closed before the pipe was opened.
            while self._open.get(descriptor) == pipe and self._read(descriptor, pipe):
                pass
        try:
            async with asyncio.timeout(patience_s):
                await self.ended.wait()
        except TimeoutError:
            self.close()

    def attach(self) -> OutputQueue:
        """Return a queue that receives the output from now on."""
        queue = OutputQueue(self._resume)
        if self.ended.is_set():
            queue.end()
        else:
            self._queues.append(queue)
        return queue

    def detach(self, queue: OutputQueue) -> None:
        """Remove a queue, and resume reading if it was full."""
        queue.end()
        if queue in self._queues:
            self._queues.remove(queue)
            self._resume()

    async def reopen_log(self) -> None:
        """Continue in a new log file, from a line's end if one comes soon. Raises OSError."""
        if self._log is None:
            return
        if not self._log.is_at_line_end and not self.ended.is_set():
            self._reopening = asyncio.Event()
            try:
                # A prompt has no line end: after `_REOPEN_S` the log is reopened anywhere.
                async with asyncio.timeout(_REOPEN_S):
                    await self._reopening.wait()
            except TimeoutError:
                self._log.reopen()
            finally:
                self._reopening = None
            return
        self._log.reopen()

    def close(self) -> None:
        """Stop reading. The process keeps running, and blocks when its pipes are full."""
        self._pause()
        if self._rate_limited is not None:
            self._rate_limited.cancel()
            self._rate_limited = None
        for pipe in self._open.values():
            os.close(pipe)
        self._open.clear()
        for queue in self._queues:
            queue.end()
        self._queues.clear()
        if self._log is not None:
            self._log.close()
            self._log = None
        self.ended.set()

    def _read(self, descriptor: int, pipe: int) -> bool:
        """Read at most one chunk; return whether there was any output."""
        try:
            data = os.read(pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._end(descriptor)
            return False
        if self._log is not None:
            self._log.write(descriptor, data)
            self._limit_rate(len(data))
            if self._reopening is not None and self._log.is_at_line_end:
                self._log.reopen()
                self._reopening.set()
                self._reopening = None
        for queue in self._queues:
            queue.feed(descriptor, data)
        if any(queue.is_full for queue in self._queues):
            self._pause()
            if self._log is not None:
                # An attached client that does not read must not block the container indefinitely.
                loop = asyncio.get_running_loop()
                self._late = loop.call_later(self._attached_patience_s, self._cut)
        return True

    def _limit_rate(self, size: int) -> None:
        """Pause reading until the period is over once the log has received its share."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now - self._period_start_s >= _LOG_PERIOD_S:
            self._period_start_s, self._period_bytes = now, 0
        self._period_bytes += size
        if self._period_bytes >= self._log_bytes_per_s and self._rate_limited is None:
            self._pause()
            next_period = self._period_start_s + _LOG_PERIOD_S
            self._rate_limited = loop.call_at(next_period, self._end_rate_limit)

    def _end_rate_limit(self) -> None:
        self._rate_limited = None
        self._resume()

    def _end(self, descriptor: int) -> None:
        pipe = self._open.pop(descriptor)
        asyncio.get_running_loop().remove_reader(pipe)
        os.close(pipe)
        if not self._open:
            self.close()

    def _cut(self) -> None:
        for queue in tuple(self._queues):
            if queue.is_full:
                self.detach(queue)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            loop = asyncio.get_running_loop()
            for pipe in self._open.values():
                loop.remove_reader(pipe)

    def _resume(self) -> None:
        if (
            self._rate_limited is not None
            or self._is_reading
            or any(queue.is_full for queue in self._queues)
        ):
            return
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._is_reading = True
        loop = asyncio.get_running_loop()
        for descriptor, pipe in self._open.items():
            loop.add_reader(pipe, self._read, descriptor, pipe)


def make_pipes(directory: Path, *, has_stdin: bool, has_stderr: bool) -> dict[int, Path]:
    """Create named pipes and return them by descriptor, 0 to 2. Raises OSError."""
    paths = {STDOUT: directory / "stdout"}
    if has_stdin:
        paths[0] = directory / "stdin"
    if has_stderr:
        paths[STDERR] = directory / "stderr"
    for path in paths.values():
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
    return paths


def pipes_in(directory: Path) -> dict[int, Path]:
    """Return the named pipes that exist, by descriptor."""
    named = {0: directory / "stdin", STDOUT: directory / "stdout", STDERR: directory / "stderr"}
    return {number: path for number, path in named.items() if path.exists()}
