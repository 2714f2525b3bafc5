"""Log file of a process: its standard output and error, in a file that is replaced when full.

The process renames its file and opens another in its place, so that no line is lost, and the file
always has the newest ones. Processes that it started before go on with the file they were given.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import msgspec

_OUTPUT, _ERROR = 1, 2


class LogLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`file_bytes` of one file; `old_files` kept beside it, `NAME.log.1` the newest."""

    file_bytes: int = 20 * 1024 * 1024
    old_files: int = 2


LOG_LIMITS = LogLimits()


class LogFile:
    """Writes to standard error, and replaces the file at a path that this is when it is full.

    Where standard error is something else, that is left alone. Safe under the lock of a logging
    handler.
    """

    def __init__(self, path: Path, limits: LogLimits = LOG_LIMITS) -> None:
        self._path = path
        self._limits = limits
        self._is_error = _is_error(path)

    def write(self, text: str, /) -> int:
        """Write a text, with its line's end. Raises OSError as standard error does."""
        if self._is_error and os.fstat(_ERROR).st_size >= self._limits.file_bytes:
            # A disk may be full: the line is written where it can be.
            with contextlib.suppress(OSError):
                self._replace()
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Write what is buffered. Raises OSError."""
        sys.stderr.flush()

    def _replace(self) -> None:
        # It may have been renamed before, without another that could be opened.
        if _is_error(self._path):
            rotate(self._path, self._limits.old_files)
        sys.stdout.flush()
        sys.stderr.flush()
        with self._path.open("ab") as file:
            os.dup2(file.fileno(), _ERROR)
            os.dup2(file.fileno(), _OUTPUT)


def _is_error(path: Path) -> bool:
    """Return whether standard error is the file at a path."""
    try:
        return os.path.samestat(os.fstat(_ERROR), path.stat())
    except OSError:
        return False


def rotate_if_full(path: Path, limits: LogLimits = LOG_LIMITS) -> None:
    """Rename a log that is full, before a process gets it. Blocks.

    One that cannot be renamed stays and grows: a process is not kept from its start for it.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size >= limits.file_bytes:
            rotate(path, limits.old_files)


def rotate(path: Path, old_files: int) -> None:
    """Rename a log to `.1`, those before to the next number; remove the last. Blocks.

    Raises OSError.
    """
    for number in range(old_files, 0, -1):
        newer = old_file(path, number - 1)
        if newer.exists():
            newer.replace(old_file(path, number))
    if not old_files:
        path.unlink()


def old_file(path: Path, number: int) -> Path:
    """Return the path of the log that was replaced so many times ago."""
    return path.with_name(f"{path.name}.{number}") if number else path
