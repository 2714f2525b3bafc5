"""Directory trees that a hostile writer may have created: walk, measure and remove them.

Depth, path length, names that are not UTF-8, links, mount points and concurrent changes are
handled: see `descent`. No function follows a symlink or crosses a mount point, so removing a
directory with a mount in it fails and leaves the mounted tree alone. Imports the standard library
and its neighbours alone, for the program that unpacks layers.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from moorage.linux.descent import Descent

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_BLOCK_BYTES = 512
_TRIES = 100
_PASSES = 1_000_000
_AT_ONCE, _LEAST_AT_ONCE = 10_000, 16
"""How many names of directories a removal holds, and of one directory at least: a writer may have
made millions.
"""
_WALK_AT_ONCE = 200_000
"""How many a walk holds of one directory: for each part of them it is read again."""
_LONGEST_TEXT = 300
_GONE = frozenset({errno.ENOENT, errno.ESTALE})
_NOT_A_DIRECTORY = frozenset({errno.ENOTDIR, errno.ELOOP})
_LOCKED = frozenset({errno.EPERM, errno.EACCES})
# Source: linux/fs.h.
_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS = 0x80086601, 0x40086602
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20


class Step(Enum):
    """A step of a walk: a directory before and after its content, or any other entry."""

    ENTER = "enter"
    OTHER = "other"
    LEAVE = "leave"


class Visit(NamedTuple):
    """A visit of a walk: the entry `name` of the directory with the descriptor `directory`, which
    is valid until the next visit. For ENTER, `directory` is the one entered. The root is `.` in
    itself. `status` is that of the entry itself, never of a link's target.
    """

    step: Step
    directory: int
    name: str
    status: os.stat_result


class DiskUse(NamedTuple):
    """Disk use in bytes and inodes."""

    size_bytes: int
    inodes: int


def walk(
    root: Path, *, directories_only: bool = False, closed: Collection[tuple[str, ...]] = ()
) -> Iterator[Visit]:
    """Yield every entry of a directory; the directory itself first and last.

    `closed` are directories, by their names from the root, whose content is left out.
    Mounts below the root are left out, and so are entries that vanish or move meanwhile. Raises
    OSError when the root cannot be opened.
    """
    top = os.open(root, _DIRECTORY)
    try:
        with Descent(top) as place:
            yield from _Walk(place, closed, directories_only=directories_only).visits()
    finally:
        os.close(top)


def disk_use(roots: Iterable[Path]) -> DiskUse:
    """Measure directories, themselves included; hard links count once. Blocks.

    Entries that vanish meanwhile and mounts are left out. Raises OSError for a root that cannot be
    opened, unless it is absent. Source: du(1).
    """
    size_bytes, inodes = 0, 0
    seen: set[tuple[int, int]] = set()
    for root in roots:
        try:
            for visit in walk(root):
                status = visit.status
                if visit.step is Step.LEAVE:
                    continue
                if status.st_nlink > 1 and visit.step is Step.OTHER:
                    key = (status.st_dev, status.st_ino)
                    if key in seen:
                        continue
                    seen.add(key)
                size_bytes += status.st_blocks * _BLOCK_BYTES
                inodes += 1
        except FileNotFoundError:
            continue
    return DiskUse(size_bytes, inodes)


def remove_tree(path: Path) -> None:
    """Remove a file, or a directory with its content; absent is no error. Blocks.

    Continues after an entry that cannot be removed, and then raises the first OSError: EBUSY for a
    mount point, whose content is never touched; ENOTEMPTY when others keep adding entries.
    Immutable files are removed if this process may clear the flag.
    """
    try:
        parent = os.open(path.parent, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        remove_entry(parent, path.name, within=path.parent)
    finally:
        os.close(parent)


def remove_entry(directory: int, name: str, *, within: Path = Path()) -> None:
    """`remove_tree` for a name in an open directory; `within` is its path, for error messages."""
    with Descent(directory) as place:
        failure = _Removal(place, within).remove(name)
    if failure is not None:
        raise failure


def remove_directories(root: Path) -> None:
    """Remove a directory and its subdirectories, as of a cgroup, whose files are the kernel's.
    Blocks.

    Raises FileNotFoundError when it is absent, OSError for the first that cannot be removed.
    """
    for visit in walk(root, directories_only=True):
        if visit.step is Step.LEAVE and visit.name != ".":
            try:
                os.rmdir(visit.name, dir_fd=visit.directory)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise OSError(error.errno, error.strerror, f"{root}/…/{visit.name}") from error
    root.rmdir()


def make_directory(path: Path, mode: int = 0o700) -> None:
    """Create a directory with exactly that mode, whatever the umask. Raises OSError."""
    path.mkdir(mode)
    descriptor = os.open(path, _DIRECTORY | os.O_NOFOLLOW)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def make_directories(path: Path, mode: int = 0o700) -> None:
    """Create a directory and its missing parents, to any depth.

    Created ones get exactly that mode, whatever the umask. Raises OSError: FileExistsError if
    another kind of file is in the way, FileNotFoundError if the file system allows no directories,
    as /proc.
    """
    waiting = [path]
    tried: set[Path] = set()
    while waiting:
        directory = waiting[-1]
        try:
            make_directory(directory, mode)
        except FileNotFoundError:
            if directory in tried or directory.parent == directory:
                raise
            tried.add(directory)
            waiting.append(directory.parent)
            continue
        except FileExistsError:
            if not directory.is_dir():
                raise
        waiting.pop()


class _Level:
    """The directories of a directory that are still to be visited.

    Their names are in memory in parts, by their hashes: `part` of so many `parts` at a time.
    """

    __slots__ = ("names", "part", "parts", "status")

    def __init__(self, status: os.stat_result) -> None:
        self.status = status
        self.names: list[str] = []
        self.part, self.parts = 0, 1

    def read_next(self, directory: int) -> bool:
        """Read the names of the next part; return whether there was one left. Raises OSError."""
        while not self.names and self.part < self.parts - 1:
            self.part += 1
            with os.scandir(directory) as entries:
                self.names = [
                    entry.name
                    for entry in entries
                    # The hash of a text is salted: no writer can choose names of one part.
                    if hash(entry.name) % self.parts == self.part
                    and entry.is_dir(follow_symlinks=False)
                ]
        return bool(self.names)


class _Walk:
    """A walk. `pending` are the levels from the root to the current directory."""

    def __init__(
        self, place: Descent, closed: Collection[tuple[str, ...]], *, directories_only: bool
    ) -> None:
        self._place = place
        self._closed = closed
        self._directories_only = directories_only
        self._pending: list[_Level] = []

    def visits(self) -> Iterator[Visit]:
        place, pending = self._place, self._pending
        yield from self._enter(".", os.fstat(place.directory))
        while place.depth or self._has_next():
            if self._has_next():
                name = pending[-1].names.pop()
                try:
                    status = place.enter(name)
                except OSError:
                    # Gone or replaced meanwhile, a mount point, or not accessible to this user.
                    continue
                yield from self._enter(name, status)
                continue
            left = place.leave()
            status = pending[-1].status
            del pending[place.depth + 1 :]
            if left is not None:
                yield Visit(Step.LEAVE, place.directory, left, status)
        yield Visit(Step.LEAVE, place.directory, ".", pending[0].status)

    def _has_next(self) -> bool:
        level = self._pending[-1]
        return bool(level.names) or level.read_next(self._place.directory)

    def _enter(self, name: str, status: os.stat_result) -> Iterator[Visit]:
        """Visit the directory just entered, and its entries other than directories."""
        directory = self._place.directory
        yield Visit(Step.ENTER, directory, name, status)
        level = _Level(status)
        if self._closed and tuple(self._place.names) in self._closed:
            self._pending.append(level)
            return
        directories = 0
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories += 1
                    if directories <= _WALK_AT_ONCE:
                        level.names.append(entry.name)
                    continue
                if self._directories_only:
                    continue
                try:
                    entry_status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield Visit(Step.OTHER, directory, entry.name, entry_status)
        if directories > _WALK_AT_ONCE:
            level.names.clear()
            level.part, level.parts = -1, 2 * directories // _WALK_AT_ONCE
        self._pending.append(level)


class _Removal:
    """A removal. `pending` are the directories still to be removed, for each level, `waiting` how
    many that are; `partial` are the levels that have more of them.
    """

    def __init__(self, place: Descent, within: Path) -> None:
        self._place = place
        self._within = within
        self._pending: list[list[str]] = []
        self._waiting = 0
        self._partial: set[int] = set()
        self._passes = _PASSES
        self._tries = _TRIES
        self._failure: OSError | None = None

    def remove(self, name: str) -> OSError | None:
        """Remove an entry of the root directory. Returns the first failure, None without one."""
        place, pending = self._place, self._pending
        pending.append([])
        self._unlink(name, pending[0])
        while place.depth or pending[0]:
            if pending[-1]:
                self._waiting -= 1
                self._descend(pending[-1].pop())
                continue
            depth, left = place.depth, place.leave()
            self._waiting -= sum(map(len, pending[place.depth + 1 :]))
            del pending[place.depth + 1 :]
            is_partial = depth in self._partial
            if self._partial:
                self._partial = {level for level in self._partial if level <= place.depth}
            if left is not None:
                self._rmdir(left, is_partial=is_partial)
        return self._failure

    def _unlink(self, name: str, directories: list[str]) -> None:
        """Remove an entry, or record it as a directory, for which unlink fails with EISDIR."""
        try:
            _unlocked(self._place.directory, name, os.unlink)
        except IsADirectoryError:
            self._wait(name, directories)
        except OSError as error:
            self._note(error, name)

    def _wait(self, name: str, directories: list[str]) -> None:
        directories.append(name)
        self._waiting += 1

    def _descend(self, name: str) -> None:
        """Enter a directory and remove its entries other than directories."""
        try:
            self._enter(name)
        except OSError as error:
            if error.errno in _NOT_A_DIRECTORY:
                self._unlink(name, self._pending[-1])
            elif error.errno == errno.EXDEV:
                mounted = "something is mounted there: unmount it first"
                self._note(OSError(errno.EBUSY, mounted), name)
            else:
                self._note(error, name)
            return
        below: list[str] = []
        self._pending.append(below)
        most = max(_LEAST_AT_ONCE, _AT_ONCE - self._waiting)
        try:
            with os.scandir(self._place.directory) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        self._unlink(entry.name, below)
                    elif len(below) < most:
                        self._wait(entry.name, below)
                    else:
                        self._partial.add(self._place.depth)
                        break
        except OSError as error:
            self._note(error, ".")

    def _enter(self, name: str) -> None:
        try:
            self._place.enter(name)
        except PermissionError:
            _open_up(self._place.directory, name)
            self._place.enter(name)

    def _rmdir(self, name: str, *, is_partial: bool) -> None:
        try:
            _unlocked(self._place.directory, name, os.rmdir)
        except OSError as error:
            if error.errno in _NOT_A_DIRECTORY:
                self._unlink(name, self._pending[-1])
            elif error.errno != errno.ENOTEMPTY:
                self._note(error, name)
            elif self._failure is None and is_partial and self._passes:
                self._passes -= 1
                self._wait(name, self._pending[-1])
            elif self._failure is None and self._tries:
                # Another process added an entry or moved one into it.
                self._tries -= 1
                self._wait(name, self._pending[-1])
            elif self._failure is None:
                self._note(error, name)

    def _note(self, error: OSError, name: str) -> None:
        if error.errno in _GONE or self._failure is not None:
            return
        path = "/".join((str(self._within), *self._place.names, name))
        if len(path) > _LONGEST_TEXT:
            path = f"{path[: _LONGEST_TEXT // 2]}…{path[-_LONGEST_TEXT // 2 :]}"
        self._failure = OSError(error.errno, error.strerror, path)


class _Act(Protocol):
    """os.unlink or os.rmdir."""

    def __call__(self, path: str, *, dir_fd: int) -> None: ...


def _unlocked(directory: int, name: str, act: _Act) -> None:
    """Call `act`; if permission is missing, unlock the entry and call it again."""
    try:
        act(name, dir_fd=directory)
    except OSError as error:
        if error.errno not in _LOCKED:
            raise
        _unlock(directory, name)
        act(name, dir_fd=directory)


def _unlock(directory: int, name: str) -> None:
    """Make a directory writable to its owner, and clear the immutable flag of it and the entry.

    As far as this process may: the second attempt reports what is still missing.
    """
    _clear_flags(directory)
    with suppress(PermissionError):
        os.fchmod(directory, stat.S_IMODE(os.fstat(directory).st_mode) | 0o700)
    entry = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=directory)
    try:
        # Opening a device or a FIFO without O_PATH would have effects.
        if stat.S_IFMT(os.fstat(entry).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            return
        opened = os.open(f"/proc/self/fd/{entry}", os.O_RDONLY)
    except PermissionError:
        return
    finally:
        os.close(entry)
    try:
        _clear_flags(opened)
    finally:
        os.close(opened)


def _clear_flags(descriptor: int) -> None:
    """Clear the flags that forbid removal, if the file system has them and this process may."""
    with suppress(OSError):
        (flags,) = struct.unpack(
            "i", fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, struct.pack("i", 0))
        )
        if flags & (_IMMUTABLE | _APPEND_ONLY):
            cleared = struct.pack("i", flags & ~(_IMMUTABLE | _APPEND_ONLY))
            fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, cleared)


def _open_up(directory: int, name: str) -> None:
    """Make a directory accessible to its owner. Raises OSError."""
    entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{entry}", 0o700)
    finally:
        os.close(entry)
