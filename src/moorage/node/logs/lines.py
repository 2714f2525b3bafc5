"""Container log lines: `TIME STREAM TAGS CONTENT` (CRI), or Docker's JSON.

Pure functions from bytes to values. A line tagged `P` is partial: the next line of the same stream
continues it, so its newline is the log's and not the program's. Source: CRI logging design, kubelet
`cri-client/pkg/logs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import msgspec

from moorage.api.clock import parse_time

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
