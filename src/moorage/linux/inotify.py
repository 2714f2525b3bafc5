"""What changes in directories, as the kernel tells it. Source: inotify(7).

A watch is on a directory, never on a file: editors and package managers put a new file in an old
one's place, and a watch on the file would stay with the old.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Self

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

# A file's creation and each write are left out: what counts is the end of its writing.
_INTERESTING = (
    _ATTRIB
    | _CLOSE_WRITE
    | _MOVED_FROM
    | _MOVED_TO
    | _CREATE
    | _DELETE
    | _DELETE_SELF
    | _MOVE_SELF
    | _ONLY_DIRECTORIES
)
_GONE = _DELETE_SELF | _MOVE_SELF | _IGNORED
# That of IN_Q_OVERFLOW.
_NO_WATCH = -1
_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class DirectoryChange:
    """Something changed in a watched directory.

    `name` is the entry's, empty when the directory itself went away or was moved. `is_uncertain`:
    so much happened that the kernel lost count, and everything may have changed.
    """

    directory: Path
    name: str = ""
    is_uncertain: bool = False


class Inotify:
    """The changes of a set of directories. `with` closes it. For one reader."""

    def __init__(self) -> None:
        """Raises OSError when the machine has no instances left (fs.inotify)."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _failure("inotify")
        self._directories: dict[int, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @property
    def directories(self) -> frozenset[Path]:
        """Those being watched."""
        return frozenset(self._directories.values())

    def watch(self, directory: Path) -> bool:
        """Watch a directory; False when there is none. Raises OSError for any other reason."""
        watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(directory), _INTERESTING)
        if watch < 0:
            error = _failure(str(directory))
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                return False
            raise error
        self._directories[watch] = directory
        return True

    def forget(self, directory: Path) -> None:
        """Watch it no more; nothing happens when it was not watched."""
        for watch, watched in tuple(self._directories.items()):
            if watched == directory:
                del self._directories[watch]
                # It fails when the directory has gone, and the watch with it.
                self._libc.inotify_rm_watch(self._descriptor, watch)

    async def changes(self) -> tuple[DirectoryChange, ...]:
        """Wait until something has changed, and all that has. No deadline: nothing may change."""
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
            if found := tuple(filter(None, map(self._change, *_split(content)))):
                return found

    def _change(self, watch: int, mask: int, name: str) -> DirectoryChange | None:
        if watch == _NO_WATCH:
            return DirectoryChange(Path("/"), is_uncertain=True)
        directory = self._directories.get(watch)
        if directory is None:
            return None
        if mask & _GONE:
            del self._directories[watch]
            if not mask & _IGNORED:
                # A directory that was moved is still watched, by a name that is no more its own.
                self._libc.inotify_rm_watch(self._descriptor, watch)
            return DirectoryChange(directory)
        if mask & _CREATE and _is_being_written(directory / name):
            return None
        return DirectoryChange(directory, name)


def _is_being_written(path: Path) -> bool:
    """Whether a new entry is a plain file, whose writer will close it; a link is whole at once."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _split(content: bytes) -> tuple[list[int], list[int], list[str]]:
    """The watches, masks and names in what the kernel gave."""
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


def _failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)
