"""Directory change notification with inotify. Source: inotify(7).

A watch is on a directory, never on a file: editors and package managers replace a file by another,
and a watch on the file would stay with the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from moorage.linux import libc

_MODIFY = 0x0002
_ATTRIB = 0x0004
_CLOSE_WRITE = 0x0008
_MOVED_FROM = 0x0040
_MOVED_TO = 0x0080
_CREATE = 0x0100
_DELETE = 0x0200
_DELETE_SELF = 0x0400
_MOVE_SELF = 0x0800
_IGNORED = 0x8000
_ONLY_DIRECTORIES = 0x0100_0000

_MOVED = _MOVED_FROM | _MOVED_TO

ENTRIES = _ATTRIB | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
"""Complete entries: a file counts when its writer has closed it."""
CREATIONS = _CREATE
"""New entries at once, a file before it is written."""
WRITES = _MODIFY | _MOVED | _CREATE | _DELETE
"""Each write to a file, and entries that come and go."""

_GONE = _DELETE_SELF | _MOVE_SELF | _IGNORED
# The watch of IN_Q_OVERFLOW.
_NO_WATCH = -1
_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class DirectoryChange:
    """A change in a watched directory.

    `name` is the entry's, empty when the directory itself was removed or moved. `is_uncertain` is
    set when the kernel's event queue overflowed, so that everything may have changed.
    """

    directory: Path
    name: str = ""
    is_uncertain: bool = False


class Inotify:
    """An inotify instance on a set of directories, for one reader. `with` closes it."""

    def __init__(self, events: int = ENTRIES) -> None:
        """Watch for these events. Raises OSError when fs.inotify.max_user_instances is reached."""
        self._descriptor = libc.inotify_init(os.O_NONBLOCK | os.O_CLOEXEC)
        self._events = events | _ONLY_DIRECTORIES
        self._directories: dict[int, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor, which is readable when there are changes."""
        return self._descriptor

    @property
    def directories(self) -> frozenset[Path]:
        """The watched directories."""
        return frozenset(self._directories.values())

    def watch(self, directory: Path) -> bool:
        """Watch a directory. Returns False if it does not exist. Raises OSError."""
        try:
            watch = libc.inotify_add_watch(self._descriptor, directory, self._events)
        except (FileNotFoundError, NotADirectoryError):
            return False
        self._directories[watch] = directory
        return True

    def forget(self, directory: Path) -> None:
        """Stop watching a directory; one that is not watched is no error."""
        for watch, watched in tuple(self._directories.items()):
            if watched == directory:
                del self._directories[watch]
                self._remove_watch(watch)

    async def changes(self) -> tuple[DirectoryChange, ...]:
        """Wait without a deadline for changes. Returns all that have happened."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                content = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                readable = asyncio.Event()
                loop.add_reader(self._descriptor, readable.set)
                try:
                    await readable.wait()
                finally:
                    loop.remove_reader(self._descriptor)
                continue
            if changes := tuple(filter(None, map(self._change, *_split(content)))):
                return changes

    def _change(self, watch: int, mask: int, name: str) -> DirectoryChange | None:
        if watch == _NO_WATCH:
            return DirectoryChange(Path("/"), is_uncertain=True)
        directory = self._directories.get(watch)
        if directory is None:
            return None
        if mask & _GONE:
            del self._directories[watch]
            if not mask & _IGNORED:
                # A moved directory is still watched, under its old name.
                self._remove_watch(watch)
            return DirectoryChange(directory)
        reports_close = self._events & _CLOSE_WRITE
        if mask & _CREATE and reports_close and _is_being_written(directory / name):
            return None
        return DirectoryChange(directory, name)

    def _remove_watch(self, watch: int) -> None:
        # The kernel removes the watch of a removed directory itself.
        with contextlib.suppress(OSError):
            libc.inotify_rm_watch(self._descriptor, watch)


def _is_being_written(path: Path) -> bool:
    """Return whether a new entry is a plain file, whose writer will close it; a link is not."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _split(content: bytes) -> tuple[list[int], list[int], list[str]]:
    """Return the watches, masks and names in a buffer of events."""
    watches, masks, names = [], [], []
    offset = 0
    while offset < len(content):
        watch, mask, _cookie, length = _HEADER.unpack_from(content, offset)
        offset += _HEADER.size
        watches.append(watch)
        masks.append(mask)
        names.append(os.fsdecode(content[offset : offset + length].rstrip(b"\0")))
        offset += length
    return watches, masks, names
