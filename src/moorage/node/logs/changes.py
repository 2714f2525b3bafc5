"""Directory change notification with inotify, for log followers.

A thin wrapper over Linux inotify through libc: the standard library has none, and one descriptor
per follower is sufficient. When inotify instances or watches are exhausted or inotify is missing,
`wait` returns at its timeout. Source: inotify(7).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path
from types import TracebackType
from typing import Self

_IN_MODIFY = 0x2
_IN_MOVE = 0x40 | 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_EVENTS = _IN_MODIFY | _IN_MOVE | _IN_CREATE | _IN_DELETE
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_BUFFER_BYTES = 4096

_libc = ctypes.CDLL(None, use_errno=True)


class DirectoryChanges:
    """Waits for changes in one directory: `with DirectoryChanges(path) as changes`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._changed = asyncio.Event()

    def __enter__(self) -> Self:
        fd = _libc.inotify_init1(_FLAGS)
        if fd < 0:
            return self
        if _libc.inotify_add_watch(fd, os.fsencode(self._path), _EVENTS) < 0:
            os.close(fd)
            return self
        self._fd = fd
        asyncio.get_running_loop().add_reader(fd, self._on_readable)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    async def wait(self, timeout_s: float) -> None:
        """Return after a change, or after `timeout_s` seconds without one."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    def _on_readable(self) -> None:
        try:
            os.read(self._fd, _BUFFER_BYTES)
        except BlockingIOError:
            return
        self._changed.set()
