"""Audit log file: lines are encoded and written by a thread, in their order, and files rotated.

Nothing is dropped while the thread can write: a request that finds too much unwritten waits before
it begins (`room`), as upstream's mode `blocking`. What cannot be written (a full disk) is counted
and logged, and requests go on. Source: apiserver `plugin/audit/log`, `--audit-log-maxsize`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from moorage.api.logs import Log
from moorage.linux.log_file import rotate
from moorage.linux.trust import PRIVATE_FILE

_WITHIN_S = 30.0

log = Log(__name__)


class FileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`file_bytes` of one file; `old_files` kept beside it, `audit.log.1` the newest.

    `unwritten` and `unwritten_bytes` bound the lines that wait for the thread.
    """

    file_bytes: int = 100 * 1024 * 1024
    old_files: int = 5
    unwritten: int = 10_000
    unwritten_bytes: int = 64 * 1024 * 1024


class AuditLog:
    """The file of one server. `written` and `failed` count lines."""

    def __init__(self, path: Path, limits: FileLimits | None = None) -> None:
        self._path = path
        self._limits = limits or FileLimits()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")
        self._lines = 0
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._file: BinaryIO | None = None
        self._file_bytes = 0
        self.written = 0
        self.failed = 0

    def add(self, line: Callable[[], bytes], held_bytes: int) -> None:
        """Write the line that `line` returns, which the thread calls.

        `held_bytes` is the memory it occupies until then.
        """
        loop = asyncio.get_running_loop()
        self._lines += 1
        self._bytes += held_bytes
        if not self._is_within():
            self._has_room.clear()
        future = self._thread.submit(self._write, line)
        future.add_done_callback(
            lambda done: _called(loop, partial(self._done, held_bytes, done.exception()))
        )

    async def room(self) -> bool:
        """Wait until a line may be added. Returns False if there is no room within 30 s."""
        if self._has_room.is_set():
            return True
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._has_room.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Write what was added, and close the file."""
        await asyncio.to_thread(self._thread.shutdown)
        if self._file is not None:
            self._file.close()

    def _is_within(self) -> bool:
        limits = self._limits
        return self._lines < limits.unwritten and self._bytes < limits.unwritten_bytes

    def _done(self, held_bytes: int, error: BaseException | None) -> None:
        self._lines -= 1
        self._bytes -= held_bytes
        if self._is_within():
            self._has_room.set()
        if error is None:
            self.written += 1
            return
        self.failed += 1
        log.error("audit event lost", file=self._path, error=error, lost=self.failed)

    def _write(self, line: Callable[[], bytes]) -> None:
        """Write a line; a part of one that an error leaves is ended by the next. In the thread."""
        content = line() + b"\n"
        if self._file is None:
            self._open()
        elif self._file_bytes + len(content) > self._limits.file_bytes and self._file_bytes:
            self._file.close()
            self._file = None
            rotate(self._path, self._limits.old_files)
            self._open()
        assert self._file is not None
        self._file_bytes += len(content)
        try:
            self._file.write(content)
        except OSError:
            self._file.close()
            self._file = None
            raise

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, PRIVATE_FILE)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._file_bytes = os.fstat(descriptor).st_size
        if self._file_bytes and os.pread(descriptor, 1, self._file_bytes - 1) != b"\n":
            self._file.write(b"\n")


def _called(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Call a function on the loop, unless the server has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)
