"""CRI log of a container.

    2026-01-02T03:04:05.000000006Z stdout F a whole line
    2026-01-02T03:04:05.000000007Z stderr P a piece, more follows

Output is written as it arrives, an unfinished line as a partial one, so that a killed engine loses
no buffered output. Source: CRI logging design; the kubelet's log reader.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from moorage.api.logs import Log
from moorage.engine.handlers.adapters.adapter import STDERR, STDOUT
from moorage.linux.regular_file import open_regular_file
from moorage.linux.trees import make_directories

PIECE_BYTES = 16 * 1024
_NAMES = {STDOUT: b"stdout", STDERR: b"stderr"}
_MODE = 0o640
_LOG = Log("moorage.engine.handlers.log")


def format_output(data: bytes, descriptor: int, now_ns: int) -> bytes:
    """Return the log lines of one chunk of output; text without its newline is partial (`P`)."""
    seconds, nanoseconds = divmod(now_ns, 1_000_000_000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    head = b"%s.%09dZ %s " % (stamp.encode(), nanoseconds, _NAMES[descriptor])
    *lines, rest = data.split(b"\n")
    parts: list[bytes] = []
    for line in lines:
        tail = line
        while len(tail) > PIECE_BYTES:
            parts += (head, b"P ", tail[:PIECE_BYTES], b"\n")
            tail = tail[PIECE_BYTES:]
        parts += (head, b"F ", tail, b"\n")
    for start in range(0, len(rest), PIECE_BYTES):
        parts += (head, b"P ", rest[start : start + PIECE_BYTES], b"\n")
    return b"".join(parts)


class CriLog:
    """Log file at a path, opened for appending. Creates missing directories."""

    def __init__(self, path: Path, clock_ns: Callable[[], int] = time.time_ns) -> None:
        """Raises OSError when the file cannot be opened."""
        self.path = path
        self._clock_ns = clock_ns
        self._descriptor = _open(path)
        self._unfinished: set[int] = set()
        self._is_failing = False

    @property
    def is_at_line_end(self) -> bool:
        """Return whether the last line of each stream is complete."""
        return not self._unfinished

    def write(self, descriptor: int, data: bytes) -> None:
        """Append output of descriptor 1 or 2.

        Output that cannot be written, as on a full disk, is dropped, and logged once until a write
        succeeds again: the container keeps running.
        """
        if not data:
            return
        if data.endswith(b"\n"):
            self._unfinished.discard(descriptor)
        else:
            self._unfinished.add(descriptor)
        text = memoryview(format_output(data, descriptor, self._clock_ns()))
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
            self._is_failing = False
        except OSError as error:
            if not self._is_failing:
                self._is_failing = True
                _LOG.error("log not written", file=self.path, why=error.strerror)

    def reopen(self) -> None:
        """Continue in a new file at the path. Raises OSError; the old file then stays open."""
        new = _open(self.path)
        os.close(self._descriptor)
        self._descriptor = new

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _open(path: Path) -> int:
    make_directories(path.parent)
    # A pod with a writable mount of the log directory may have put something else there.
    return open_regular_file(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode=_MODE)
