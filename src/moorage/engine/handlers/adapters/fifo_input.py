"""Process input of a shim, through a named pipe (FIFO) that the shim reads.

Source: fifo(7): open(2) for writing fails with ENXIO, or blocks, while the FIFO has no reader.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CLOEXEC
_READER_S = 2.0
"""The shim opens its end concurrently with its reply to Start, so it may be late."""


class ProcessInput:
    """Input pipe of a process, opened at the first write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pipe: int | None = None

    async def write(self, data: bytes) -> None:
        """Write input; blocks while the pipe is full. Raises OSError when there is no reader."""
        if self._pipe is None:
            self._pipe = await _open(self._path)
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


async def _open(path: Path) -> int:
    """Open the writing end. Raises OSError when no reader appears within `_READER_S`."""
    try:
        return os.open(path, _FLAGS | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    # Held by descriptor instead of by name: the task may be deleted during the wait.
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return await _open_when_read(Path(f"/proc/self/fd/{handle}"), path)
    finally:
        os.close(handle)


async def _open_when_read(handle: Path, path: Path) -> int:
    opening = asyncio.ensure_future(asyncio.to_thread(os.open, handle, _FLAGS))
    has_reader = False
    try:
        await asyncio.wait({opening}, timeout=_READER_S)
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
