"""Mark of a store: a file outside the database that records which store was made and how far.

A database that is gone, or that ends before the recorded revision (an older copy, a missing
write-ahead log), is found by it at start. The revision is overwritten in place after each commit
without an fsync: it survives the process, and after a power cut it is at worst too low, never
above what is on disk. Hot path: `record`, one pwrite for each commit (bench/storage.py).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from moorage.linux.atomic_file import write_durably
from moorage.storage.store import StoreBrokenError

_HEAD = "# Written by moorage; what it is for: docs/storage.md\nstore {identity}\nrevision "
_DIGITS = 20
_PATTERN = re.compile(r"^store (\S+)\nrevision ([0-9]{20})\n$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a mark says: the store's identity and the last revision that was acknowledged."""

    identity: str
    revision: int


class Mark:
    """The open mark of a store, to record revisions in."""

    def __init__(self, descriptor: int, offset: int) -> None:
        self._descriptor = descriptor
        self._offset = offset

    @classmethod
    def write(cls, path: Path, recorded: Recorded) -> Self:
        """Put a mark in place, durably. Blocks. Raises OSError."""
        head = _HEAD.format(identity=recorded.identity)
        write_durably(path, f"{head}{recorded.revision:0{_DIGITS}}\n".encode())
        return cls.open(path, recorded.identity)

    @classmethod
    def open(cls, path: Path, identity: str) -> Self:
        """Open a mark that says so."""
        descriptor = os.open(path, os.O_WRONLY)
        return cls(descriptor, len(_HEAD.format(identity=identity)))

    def record(self, revision: int) -> None:
        """Overwrite the revision. Raises OSError."""
        os.pwrite(self._descriptor, f"{revision:0{_DIGITS}}".encode(), self._offset)

    def close(self) -> None:
        os.close(self._descriptor)


def read_mark(path: Path) -> Recorded | None:
    """Return what a mark says, None if there is none. Raises StoreBrokenError for a damaged one."""
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
    """Where a mark lies whose store was given up with `accept_loss`."""
    return path.with_name(f"{path.name}.accepted")


def accept_loss(path: Path) -> None:
    """Let the next start go on without what a mark records: empty, or from an older copy.

    Revisions then go on above the recorded one, so that no client takes a new one for an old one.
    """
    if path.exists():
        path.replace(accepted_path(path))
