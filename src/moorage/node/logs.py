"""Container logs: CRI line format, reading, following and rotation."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from moorage.api.clock import parse_time
from moorage.api.logs import Log
from moorage.linux.descriptors import open_regular_file
from moorage.linux.inotify import WRITES, Inotify

# Container log lines: `TIME STREAM TAGS CONTENT` (CRI), or Docker's JSON.
#
# Pure functions from bytes to values. A line tagged `P` is partial: the next line of the same
# stream continues it, so its newline is the log's and not the program's. Source: CRI logging
# design, kubelet `cri-client/pkg/logs`.

STDOUT = "stdout"
STDERR = "stderr"

_STREAMS = {b"stdout": STDOUT, b"stderr": STDERR}
_PARTIAL = b"P"


class LineError(ValueError):
    """A line is in none of the known formats."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A full or partial line. `content` ends with a newline unless it is partial.

    `stamp` is the time as written, in RFC 3339 with up to nine fraction digits.
    """

    stamp: str
    stream: str
    content: bytes

    def is_before(self, moment: datetime) -> bool:
        """Return whether the line was written before a moment.

        Raises LineError for an invalid time.
        """
        try:
            return parse_time(self.stamp) < moment
        except ValueError as error:
            raise LineError(str(error)) from error


def parse_cri(line: bytes) -> LogLine:
    """Parse a line in the CRI format. Raises LineError."""
    parts = line.split(b" ", 3)
    if len(parts) < 4:
        raise LineError("a log line needs time, stream, tags and content")
    stamp, stream, tags, content = parts
    if stream not in _STREAMS:
        raise LineError(f"unexpected stream type {stream!r}")
    if not (stamp[:4].isdigit() and b"T" in stamp):
        raise LineError(f"unexpected timestamp {stamp!r}")
    if tags.split(b":", 1)[0] == _PARTIAL and content.endswith(b"\n"):
        content = content[:-1]
    return LogLine(stamp.decode(), _STREAMS[stream], content)


class _DockerLine(msgspec.Struct):
    time: str
    stream: str = STDOUT
    log: str = ""


_docker = msgspec.json.Decoder(_DockerLine)


def parse_docker(line: bytes) -> LogLine:
    """Parse a line in Docker's json-file format. Raises LineError."""
    try:
        record = _docker.decode(line)
    except msgspec.DecodeError as error:
        raise LineError(str(error)) from error
    return LogLine(record.time, record.stream, record.log.encode())


Parser = Callable[[bytes], LogLine]
_PARSERS: tuple[Parser, ...] = (parse_cri, parse_docker)


def parser_for(line: bytes) -> Parser:
    """Return the parser that accepts this line. Raises LineError when none does."""
    for parser in _PARSERS:
        try:
            parser(line)
        except LineError:
            continue
        return parser
    raise LineError(f"unsupported log format: {line[:80]!r}")


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Selection of a log's lines. Source: core/v1 `PodLogOptions`.

    `streams` holds stdout, stderr or both; `since` is a time in UTC.
    """

    follow: bool = False
    timestamps: bool = False
    since: datetime | None = None
    tail_lines: int | None = None
    limit_bytes: int | None = None
    streams: frozenset[str] = frozenset({STDOUT, STDERR})


class LogFilter:
    """Applies log options to lines, up to the limit of bytes."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._left = options.limit_bytes
        self._is_line_start = True

    @property
    def is_exhausted(self) -> bool:
        return self._left is not None and self._left <= 0

    def shown(self, line: LogLine) -> bytes:
        """Return the bytes to send for a line; empty for one that is filtered out."""
        is_start, self._is_line_start = (
            self._is_line_start,
            not line.content or line.content.endswith(b"\n"),
        )
        since = self._options.since
        if line.stream not in self._options.streams:
            return b""
        if since is not None and line.is_before(since):
            return b""
        shown = line.content
        if self._options.timestamps and is_start:
            shown = _shown_stamp(line.stamp).encode() + b" " + shown
        if self._left is not None:
            shown = shown[: self._left]
            self._left -= len(shown)
        return shown


def _shown_stamp(stamp: str) -> str:
    """Return the time as kubelets print it: a zero offset, which conmon writes in full, as Z."""
    return stamp.removesuffix("+00:00") + "Z" if stamp.endswith("+00:00") else stamp


# Log reading: the tail of a container's log file, the whole file, or following it.
#
# Follows the file across rotation by comparing the inode of its path with the open file's. Blocks
# are read in a thread, lines are parsed in the event loop; memory is bounded by one block and one
# line. Source: kubelet `cri-client/pkg/logs.ReadLogs`.

log = Log(__name__)

_BLOCK_BYTES = 256 * 1024
_SEEK_BLOCK_BYTES = 4096
_LONGEST_LINE_BYTES = 1024 * 1024
_CHECK_S = 1.0
_REOPEN_S = 5.0

IsRunning = Callable[[], Awaitable[bool]]


class LogReadError(OSError):
    """A log cannot be read; the text is returned to the client."""


async def read_log(
    path: Path, options: LogOptions, is_running: IsRunning
) -> AsyncGenerator[bytes, None]:
    """Yield the selected part of a log, in pieces of at most a block.

    With `options.follow`, continues until `is_running` returns False and the end is reached. Raises
    LogReadError when the file cannot be opened or is not a log.
    """
    reader = LogFile(path, options)
    await _open(reader, path)
    try:
        async for piece in reader.present():
            yield piece
        if options.follow and not reader.is_done:
            async for piece in reader.growing(is_running):
                yield piece
    finally:
        reader.close()


async def _open(reader: LogFile, path: Path) -> None:
    """Open a log; a rotation renames it a moment before the engine makes it again."""
    try:
        reader.open()
    except LogReadError as error:
        is_rotated = isinstance(error.__cause__, FileNotFoundError) and any(
            path.parent.glob(f"{path.name}.*")
        )
        if not is_rotated:
            raise
    else:
        return
    deadline_s = time.monotonic() + _REOPEN_S
    with DirectoryChanges(path.parent) as changes:
        while _is_missing(path) and (left_s := deadline_s - time.monotonic()) > 0:
            await changes.wait(left_s)
    reader.open()


def _is_missing(path: Path) -> bool:
    return not path.exists()


class LogFile:
    """An open log file and the read position."""

    def __init__(self, path: Path, options: LogOptions) -> None:
        self._path = path
        self._options = options
        self._filter = LogFilter(options)
        self._file: BinaryIO | None = None
        self._pending = b""
        self._parse: Parser | None = None
        is_limited = options.tail_lines is not None and not options.follow
        self._lines_left = options.tail_lines if is_limited else None

    @property
    def is_done(self) -> bool:
        return self._filter.is_exhausted or self._lines_left == 0

    def open(self) -> None:
        try:
            # Docker's logs are behind links.
            self._path = self._path.resolve(strict=True)
            self._file = self._open_file()
        except FileNotFoundError as error:
            raise self._failure(error) from error
        if self._options.tail_lines is not None:
            self._file.seek(tail_start(self._file, self._options.tail_lines))

    def _open_file(self) -> BinaryIO:
        """Open the log. Raises FileNotFoundError without one, LogReadError."""
        try:
            return open(open_regular_file(self._path, os.O_RDONLY), "rb")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> LogReadError:
        return LogReadError(f'failed to open log file "{self._path}": {error.strerror}')

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    async def present(self) -> AsyncIterator[bytes]:
        """Yield everything up to the current end of the file."""
        while not self.is_done:
            block = await asyncio.to_thread(self._read)
            if not block:
                return
            shown = self._shown(block)
            if shown:
                yield shown

    async def growing(self, is_running: IsRunning) -> AsyncIterator[bytes]:
        """Yield data appended from now on, to this file and its successors after rotation."""
        with DirectoryChanges(self._path.parent) as changes:
            while not self.is_done:
                # Queried before the read: a container's last output is in the file when it has
                # ended.
                goes_on = await is_running()
                async for piece in self.present():
                    yield piece
                if self._is_replaced():
                    self._follow_name()
                    continue
                if not goes_on:
                    return
                await changes.wait(_CHECK_S)

    def _read(self) -> bytes:
        assert self._file is not None
        return self._file.read(_BLOCK_BYTES)

    def _shown(self, block: bytes) -> bytes:
        *lines, self._pending = (self._pending + block).split(b"\n")
        if len(self._pending) > _LONGEST_LINE_BYTES:
            lines.append(self._pending)
            self._pending = b""
        pieces: list[bytes] = []
        for line in lines:
            if self.is_done:
                break
            pieces.append(self._shown_line(line + b"\n"))
        return b"".join(pieces)

    def _shown_line(self, line: bytes) -> bytes:
        if self._parse is None:
            try:
                self._parse = parser_for(line)
            except LineError as error:
                raise LogReadError(f"failed to get parse function: {error}") from error
        try:
            shown = self._filter.shown(self._parse(line))
        except LineError as error:
            log.warning("log line skipped", path=self._path, error=error)
            return b""
        if self._lines_left is not None:
            self._lines_left -= 1
        return shown

    def _is_replaced(self) -> bool:
        assert self._file is not None
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        opened = os.fstat(self._file.fileno())
        return (named.st_ino, named.st_dev) != (opened.st_ino, opened.st_dev)

    def _follow_name(self) -> None:
        try:
            fresh = self._open_file()
        except FileNotFoundError:
            return
        self.close()
        self._file = fresh
        self._pending = b""


def tail_start(file: BinaryIO, lines: int) -> int:
    """Return the offset of the last `lines` lines of a file.

    An incomplete last line, without newline, is not counted.
    """
    position = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return position
    # The newline that ends the last line does not start a selected line.
    missing = lines + 1
    while position > 0:
        length = min(_SEEK_BLOCK_BYTES, position)
        position -= length
        file.seek(position)
        block = file.read(length)
        count = block.count(b"\n")
        if count >= missing:
            offset = len(block)
            for _ in range(missing):
                offset = block.rindex(b"\n", 0, offset)
            return position + offset + 1
        missing -= count
    return 0


async def last_of_log(path: Path, lines: int, limit_bytes: int) -> str:
    """Return the end of a log as text: at most `lines` lines and `limit_bytes` bytes.

    Raises LogReadError.
    """
    text = read_log(path, LogOptions(tail_lines=lines), _never)
    pieces = [piece async for piece in text]
    return b"".join(pieces)[-limit_bytes:].decode(errors="replace")


async def _never() -> bool:
    return False


# Directory change notification for log followers.
#
# Each follower has an inotify instance of its own. When inotify instances or watches are exhausted,
# `wait` returns at its timeout. Source: inotify(7).


class DirectoryChanges:
    """Waits for changes in one directory: `with DirectoryChanges(path) as changes`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inotify: Inotify | None = None

    def __enter__(self) -> Self:
        try:
            self._inotify = Inotify(WRITES)
            is_watched = self._inotify.watch(self._path)
        except OSError:
            is_watched = False
        if not is_watched:
            self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    async def wait(self, timeout_s: float) -> None:
        """Return after a change, or after `timeout_s` seconds without one."""
        if self._inotify is None:
            await asyncio.sleep(timeout_s)
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._inotify.changes()
        except TimeoutError:
            return
