"""Tree copies: directories of an image with owners, modes, times, hard links and attributes.

Holes of files stay holes, so that a sparse file takes no more room than in the image; nodes and
FIFOs are created, never opened. Links are never followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from moorage.linux.descent import Descent
from moorage.linux.trees import Step, Visit, remove_entry, walk

_FICLONE = 0x40049409
_NO_CLONE = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY})
_PIECE_BYTES = 1 << 20
_MEASURED_BYTES = 16 << 20
"""How much is written between two looks at the free space."""
_ENTRY_BYTES = 4096
"""What an entry takes beside its data: an inode and a name."""
_RESERVED_INODES = 20
"""One inode in so many stays free."""
# Overlayfs keeps its own attributes to itself; a label is that of the new place, as in containerd.
_LEFT_OUT = ("trusted.overlay.", "security.selinux")
Owner = Callable[[os.stat_result], tuple[int, int]]
"""Returns the owner and group of a copied entry."""


def same_owner(status: os.stat_result) -> tuple[int, int]:
    """Return the owner and group that an entry has."""
    return status.st_uid, status.st_gid


class TreeCopy:
    """A copy of a tree over the present content of another; `whiteouts` are left out.

    `reserve_bytes` of the target's disk, and a twentieth of its inodes, stay free when more than a
    few megabytes or thousand entries are written.
    """

    def __init__(
        self, owner: Owner, whiteouts: Collection[str] = (), *, reserve_bytes: int = 0
    ) -> None:
        self._owner = owner
        self._whiteouts = whiteouts
        self._reserve_bytes = reserve_bytes
        self._unmeasured_bytes = 0
        # Where the first name of a hard-linked file was copied to.
        self._copied: dict[tuple[int, int], tuple[str, ...]] = {}

    def tree(self, source: Path, target: Path, *, closed: Collection[tuple[str, ...]] = ()) -> None:
        """Copy a directory's content, then its attributes: filling it changes its times.

        Of the directories `closed`, by their names from the source, the content is left out.
        Blocks. Raises OSError: ENOSPC when the reserve is reached.
        """
        with opened(target) as root, Descent(root) as place:
            for visit in walk(source, closed=closed):
                is_root = visit.name == "."
                if visit.step is Step.OTHER:
                    if "/".join((*place.names, visit.name)) not in self._whiteouts:
                        self._entry(visit, place, root)
                elif visit.step is Step.ENTER:
                    if not is_root:
                        self._measure(place.directory, _ENTRY_BYTES)
                        _make_directory(place, visit.name)
                        place.enter(visit.name)
                else:
                    if not is_root:
                        place.leave()
                    self._attributes(visit, place)

    def _entry(self, visit: Visit, place: Descent, root: int) -> None:
        self._measure(place.directory, _ENTRY_BYTES)
        remove_entry(place.directory, visit.name)
        status = visit.status
        if status.st_nlink > 1:
            file = (status.st_dev, status.st_ino)
            first = self._copied.setdefault(file, (*place.names, visit.name))
            if first != (*place.names, visit.name):
                _link(root, first, place.directory, visit.name)
                return
        if stat.S_ISREG(status.st_mode):
            self._file(visit, place.directory)
        elif stat.S_ISLNK(status.st_mode):
            text = os.readlink(visit.name, dir_fd=visit.directory)
            os.symlink(text, visit.name, dir_fd=place.directory)
        else:
            os.mknod(visit.name, status.st_mode, status.st_rdev, dir_fd=place.directory)
        self._attributes(visit, place)

    def _attributes(self, visit: Visit, place: Descent) -> None:
        status = visit.status
        # The calls for extended attributes take paths alone.
        source = f"/proc/self/fd/{visit.directory}/{visit.name}"
        target = f"/proc/self/fd/{place.directory}/{visit.name}"
        os.chown(target, *self._owner(status), follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(target, stat.S_IMODE(status.st_mode))
        for name in os.listxattr(source, follow_symlinks=False):
            if not name.startswith(_LEFT_OUT):
                value = os.getxattr(source, name, follow_symlinks=False)
                os.setxattr(target, name, value, follow_symlinks=False)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)

    def _file(self, visit: Visit, directory: int) -> None:
        source = os.open(visit.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=visit.directory)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            target = os.open(visit.name, flags, 0o600, dir_fd=directory)
            try:
                try:
                    fcntl.ioctl(target, _FICLONE, source)
                except OSError as error:
                    if error.errno not in _NO_CLONE:
                        raise
                    self._content(source, target)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _content(self, source: int, target: int) -> None:
        """Copy the data of a file and leave out its holes. Source: lseek(2), SEEK_DATA."""
        for start, end in _data(source):
            offset = start
            while piece := os.pread(source, min(_PIECE_BYTES, end - offset), offset):
                self._measure(target, len(piece))
                written = os.pwrite(target, piece, offset)
                offset += written
        os.ftruncate(target, os.fstat(source).st_size)

    def _measure(self, target: int, size_bytes: int) -> None:
        self._unmeasured_bytes += size_bytes
        if not self._reserve_bytes or self._unmeasured_bytes < _MEASURED_BYTES:
            return
        self._unmeasured_bytes = 0
        file_system = os.fstatvfs(target)
        inodes = file_system.f_files // _RESERVED_INODES
        if file_system.f_bavail * file_system.f_frsize < self._reserve_bytes:
            reserve = f"{self._reserve_bytes} bytes"
        elif file_system.f_favail < inodes:
            reserve = f"{inodes} inodes"
        else:
            return
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {reserve} must stay free")


def _make_directory(place: Descent, name: str) -> None:
    """Create a directory unless it exists; any other entry in its place is removed."""
    try:
        present = os.stat(name, dir_fd=place.directory, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:
        if stat.S_ISDIR(present.st_mode):
            return
        os.unlink(name, dir_fd=place.directory)
    os.mkdir(name, 0o700, dir_fd=place.directory)


def _link(root: int, first: Sequence[str], directory: int, name: str) -> None:
    """Hard-link a copied file; both paths may exceed PATH_MAX."""
    with Descent(root) as place:
        for part in first[:-1]:
            place.enter(part)
        os.link(
            first[-1], name, src_dir_fd=place.directory, dst_dir_fd=directory, follow_symlinks=False
        )


def _data(source: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that hold data: start, and the offset after it."""
    size = os.fstat(source).st_size
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                # A hole up to the end.
                return
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        yield start, end


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """Yield a descriptor of a directory. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
