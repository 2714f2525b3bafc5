"""The input of a shim's process, through a named pipe that the shim reads.

Source: fifo(7): a pipe without a reader cannot be opened for writing unless one waits for it.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

_FLAGS = os.O_WRONLY | os.O_CLOEXEC
_READER_S = 2.0
"""A shim opens its end beside its answer that the process has started, so it may be late."""


class ProcessInput:
    """The input pipe of a process, opened at the first write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pipe: int | None = None

    async def write(self, data: bytes) -> None:
        """Give input; waits while the pipe is full. Raises OSError when nobody reads it."""
        if self._pipe is None:
            self._pipe = await _open(self._path)
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._pipe, rest) :]
            except BlockingIOError:
                await _writable(self._pipe)

    def close(self) -> None:
        """Write no more; the input ends only when the shim is told."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None


async def _open(path: Path) -> int:
    """The writing end. Raises OSError when there is no reader, and none comes soon."""
    try:
        return os.open(path, _FLAGS | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
    # The pipe is held by no name: the task may be deleted while somebody waits.
    held = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        return await _open_when_read(Path(f"/proc/self/fd/{held}"), path)
    finally:
        os.close(held)


async def _open_when_read(held: Path, path: Path) -> int:
    opening = asyncio.ensure_future(asyncio.to_thread(os.open, held, _FLAGS))
    has_reader = False
    try:
        await asyncio.wait({opening}, timeout=_READER_S)
        has_reader = opening.done()
    finally:
        if not opening.done():
            # A thread that waits in open(2) cannot be cancelled, but a reader lets it go on.
            reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            await asyncio.wait({opening})
            os.close(reader)
        pipe = opening.result()
        if not has_reader:
            os.close(pipe)
    if not has_reader:
        raise OSError(errno.ENXIO, "its input is read by nobody", str(path))
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
