"""Mark of a store: a file outside the database with the identity of the store and its revision.

It detects at start a database that is gone, or that ends before the recorded revision (an older
copy, a missing write-ahead log). The revision is overwritten in place after each commit
without an fsync: it survives the process, and after a power cut it is at worst too low, never
above what is on disk. Hot path: `record`, one pwrite for each commit (bench/storage.py).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Self

import msgspec

from moorage.api.logs import Log
from moorage.apiserver.storage.store import StoreBrokenError
from moorage.linux.atomic_file import write_durably

_HEAD = "# Written by moorage; what it is for: docs/storage.md\nstore {identity}\nrevision "
_DIGITS = 20
_PATTERN = re.compile(r"^store (\S+)\nrevision ([0-9]{20})\n$", re.MULTILINE)

log = Log(__name__)


class Recorded(msgspec.Struct, frozen=True):
    """Contents of a mark: the identity of the store and the last acknowledged revision."""

    identity: str
    revision: int


class Mark:
    """The open mark of a store; records revisions."""

    def __init__(self, path: Path, descriptor: int, offset: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._offset = offset
        self._is_stale = False

    @classmethod
    def write(cls, path: Path, recorded: Recorded) -> Self:
        """Create a mark durably and open it. Blocks. Raises OSError."""
        write_durably(path, mark_content(recorded))
        return cls.open(path, recorded.identity)

    @classmethod
    def open(cls, path: Path, identity: str) -> Self:
        """Open a mark with this identity."""
        descriptor = os.open(path, os.O_WRONLY)
        return cls(path, descriptor, len(_HEAD.format(identity=identity)))

    def record(self, revision: int) -> None:
        """Overwrite the revision. A failure is logged once, until it is overwritten again.

        The change is durable nevertheless; only its loss would not be detected.
        """
        try:
            os.pwrite(self._descriptor, f"{revision:0{_DIGITS}}".encode(), self._offset)
        except OSError as error:
            if not self._is_stale:
                log.error("the store's mark cannot be written", path=self._path, error=error)
            self._is_stale = True
        else:
            self._is_stale = False

    def close(self) -> None:
        os.close(self._descriptor)


def mark_content(recorded: Recorded) -> bytes:
    """Return the content of a mark's file."""
    head = _HEAD.format(identity=recorded.identity)
    return f"{head}{recorded.revision:0{_DIGITS}}\n".encode()


def read_mark(path: Path) -> Recorded | None:
    """Return the contents of a mark, None if absent. Raises StoreBrokenError if it is damaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    match = _PATTERN.search(content.decode(errors="replace"))
    if match is None:
        raise StoreBrokenError(
            f"{path}, which records the store's revision, is damaged; put it back as it was, or, "
            "if the database is known to be the newest, remove it"
        )
    return Recorded(match[1], int(match[2]))


def accepted_path(path: Path) -> Path:
    """Return the path of the mark of a store whose loss was accepted."""
    return path.with_name(f"{path.name}.accepted")


def accept_loss(path: Path) -> None:
    """Allow the next start without the recorded data: with an empty or an older database.

    Revisions then continue above the recorded one, so that none is used twice.
    """
    if path.exists():
        path.replace(accepted_path(path))
