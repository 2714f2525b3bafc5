"""Native snapshotter: root filesystems by copying, where overlayfs is refused, as in a container.

Each container has its own copy of the image's files; blocks are shared where the file system
supports reflinks. Slow and large, but it works everywhere. Source: OCI image-spec, "Applying
Changesets".
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from moorage.engine.images.layers import read_record, tree_of
from moorage.linux.bind import bind
from moorage.linux.descent import Descent
from moorage.linux.idmap import IdMappings
from moorage.linux.mounts import MountSource
from moorage.linux.trees import Step, Visit, remove_entry, remove_tree, walk

_ROOT = "root"
_FICLONE = 0x40049409
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_OVERLAY_XATTRS = "trusted.overlay."
Owner = Callable[[os.stat_result], tuple[int, int]]


class Native:
    """The snapshotter `native`."""

    def mount(
        self, home: Path, layers: Sequence[Path], target: Path, mappings: IdMappings | None
    ) -> None:
        self._copy(home, layers, mappings)
        bind(home / _ROOT, target)

    def mount_read_only(self, home: Path, layers: Sequence[Path], target: Path) -> None:
        self._copy(home, layers, None)
        bind(home / _ROOT, target, is_read_only=True)

    def sources(self, home: Path, layers: Sequence[Path]) -> tuple[MountSource, ...]:
        del layers
        return (MountSource("bind", str(self.writable(home)), ("rbind", "rw")),)

    def writable(self, home: Path) -> Path:
        return home / _ROOT

    def _copy(self, home: Path, layers: Sequence[Path], mappings: IdMappings | None) -> None:
        root = home / _ROOT
        if root.is_dir():
            return
        scratch = home / f".{_ROOT}.new"
        remove_tree(scratch)
        scratch.mkdir()
        scratch.chmod(0o755)
        owner = _owner(mappings)
        os.chown(scratch, *owner(scratch.stat()))
        try:
            for layer in layers:
                record = read_record(layer)
                _hide(scratch, record.whiteouts, record.opaques)
                _Copy(owner, set(record.whiteouts)).tree(tree_of(layer), scratch)
            scratch.rename(root)
        except BaseException:
            remove_tree(scratch)
            raise


def _owner(mappings: IdMappings | None) -> Owner:
    if mappings is None:
        return lambda status: (status.st_uid, status.st_gid)
    return lambda status: (
        mappings.user(status.st_uid),
        mappings.group(status.st_gid),
    )


def _hide(root: Path, whiteouts: Collection[str], opaques: Collection[str]) -> None:
    """Remove the entries that a layer hides."""
    for path in opaques:
        with _descended(root, Path(path).parts) as place:
            if place is not None:
                for name in os.listdir(place.directory):
                    remove_entry(place.directory, name, within=root / path)
    for path in whiteouts:
        hidden = Path(path)
        with _descended(root, hidden.parts[:-1]) as place:
            if place is not None:
                remove_entry(place.directory, hidden.name, within=root / hidden.parent)


@contextmanager
def _descended(root: Path, parts: Sequence[str]) -> Iterator[Descent | None]:
    """Descend from the root without following links; None if the directory does not exist."""
    with _opened(root) as top, Descent(top) as place:
        try:
            for part in parts:
                place.enter(part)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            yield None
        else:
            yield place


@contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Copy:
    """A copy of one layer over the present content. Links are never followed."""

    def __init__(self, owner: Owner, whiteouts: Collection[str]) -> None:
        self._owner = owner
        self._whiteouts = whiteouts
        # Where the first name of a hard-linked file was copied to.
        self._copied: dict[int, tuple[str, ...]] = {}

    def tree(self, source: Path, target: Path) -> None:
        """Copy a directory's content, then its attributes: filling it changes its times."""
        with _opened(target) as root, Descent(root) as place:
            for visit in walk(source):
                is_root = visit.name == "."
                if visit.step is Step.OTHER:
                    if "/".join((*place.names, visit.name)) not in self._whiteouts:
                        self._entry(visit, place, root)
                elif visit.step is Step.ENTER:
                    if not is_root:
                        _make_directory(place, visit.name)
                        place.enter(visit.name)
                else:
                    if not is_root:
                        place.leave()
                    self._attributes(visit, place)

    def _entry(self, visit: Visit, place: Descent, root: int) -> None:
        remove_entry(place.directory, visit.name)
        status = visit.status
        if status.st_nlink > 1:
            first = self._copied.setdefault(status.st_ino, (*place.names, visit.name))
            if first != (*place.names, visit.name):
                _link(root, first, place.directory, visit.name)
                return
        if stat.S_ISREG(status.st_mode):
            _copy_file(visit, place.directory)
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
            if not name.startswith(_OVERLAY_XATTRS):
                value = os.getxattr(source, name, follow_symlinks=False)
                os.setxattr(target, name, value, follow_symlinks=False)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)


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


def _copy_file(visit: Visit, directory: int) -> None:
    flags = os.O_NOFOLLOW
    source = os.open(visit.name, os.O_RDONLY | flags, dir_fd=visit.directory)
    with open(source, "rb") as reader:
        target = os.open(
            visit.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags, 0o600, dir_fd=directory
        )
        with open(target, "wb") as writer:
            try:
                fcntl.ioctl(writer, _FICLONE, reader.fileno())
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY):
                    raise
                shutil.copyfileobj(reader, writer, 1 << 20)
