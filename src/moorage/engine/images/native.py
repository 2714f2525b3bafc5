"""Root filesystems by copying: for hosts where overlayfs is refused, such as inside a container.

Each container has all of its image's files on disk for itself; blocks are shared where the file
system can. Slow and large, but it works everywhere.
Source: OCI image-spec, "Applying Changesets".
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from moorage.engine.images.layers import read_record, tree_of
from moorage.linux.bind import bind
from moorage.linux.idmap import IdMappings

_ROOT = "root"
_FICLONE = 0x40049409
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

    def writable(self, home: Path) -> Path:
        return home / _ROOT

    def _copy(self, home: Path, layers: Sequence[Path], mappings: IdMappings | None) -> None:
        root = home / _ROOT
        if root.is_dir():
            return
        scratch = home / f".{_ROOT}.new"
        if scratch.exists():
            shutil.rmtree(scratch)
        scratch.mkdir()
        scratch.chmod(0o755)
        owner = _owner(mappings)
        os.chown(scratch, *owner(scratch.stat()))
        try:
            for layer in layers:
                record = read_record(layer)
                _hide(scratch, record.whiteouts, record.opaques)
                _Copy(owner, set(record.whiteouts)).folder(tree_of(layer), scratch)
            scratch.rename(root)
        except BaseException:
            shutil.rmtree(scratch)
            raise


def _owner(mappings: IdMappings | None) -> Owner:
    if mappings is None:
        return lambda found: (found.st_uid, found.st_gid)
    return lambda found: (
        mappings.user(found.st_uid),
        mappings.group(found.st_gid),
    )


def _hide(root: Path, whiteouts: Collection[str], opaques: Collection[str]) -> None:
    """Remove what a layer hides of those below it."""
    for path in opaques:
        folder = _place(root, path)
        if folder is not None and stat.S_ISDIR(folder.lstat().st_mode):
            for each in folder.iterdir():
                _remove(each)
    for path in whiteouts:
        hidden = _place(root, path)
        if hidden is not None:
            _remove(hidden)


def _place(root: Path, path: str) -> Path | None:
    """Where a path is below the root without following links; None where it is not."""
    place = root
    for part in Path(path).parts:
        if not stat.S_ISDIR(place.lstat().st_mode):
            return None
        place /= part
        if not os.path.lexists(place):
            return None
    return place


def _remove(path: Path) -> None:
    if stat.S_ISDIR(path.lstat().st_mode):
        shutil.rmtree(path)
    else:
        path.unlink()


class _Copy:
    """One layer copied over what is there. Links are never followed."""

    def __init__(self, owner: Owner, whiteouts: Collection[str]) -> None:
        self._owner = owner
        self._whiteouts = whiteouts
        self._copied: dict[int, Path] = {}

    def folder(self, source: Path, target: Path, path: str = "") -> None:
        """The content of a folder, then its attributes: filling it changes its times."""
        with os.scandir(source) as entries:
            for entry in entries:
                inner = f"{path}/{entry.name}" if path else entry.name
                if inner not in self._whiteouts:
                    self._entry(Path(entry.path), target / entry.name, inner)
        self._attributes(source, target)

    def _entry(self, source: Path, target: Path, path: str) -> None:
        found = source.lstat()
        is_folder = stat.S_ISDIR(found.st_mode)
        if os.path.lexists(target) and not (is_folder and stat.S_ISDIR(target.lstat().st_mode)):
            _remove(target)
        if is_folder:
            target.mkdir(exist_ok=True, mode=0o700)
            self.folder(source, target, path)
            return
        first = self._copied.setdefault(found.st_ino, target)
        if first is not target:
            os.link(first, target, follow_symlinks=False)
            return
        if stat.S_ISREG(found.st_mode):
            _copy_file(source, target)
        elif stat.S_ISLNK(found.st_mode):
            target.symlink_to(os.readlink(source))
        else:
            os.mknod(target, found.st_mode, found.st_rdev)
        self._attributes(source, target)

    def _attributes(self, source: Path, target: Path) -> None:
        found = source.lstat()
        os.chown(target, *self._owner(found), follow_symlinks=False)
        if not stat.S_ISLNK(found.st_mode):
            target.chmod(stat.S_IMODE(found.st_mode))
        for name in os.listxattr(source, follow_symlinks=False):
            if not name.startswith(_OVERLAY_XATTRS):
                value = os.getxattr(source, name, follow_symlinks=False)
                os.setxattr(target, name, value, follow_symlinks=False)
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns), follow_symlinks=False)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("xb") as writer:
        try:
            fcntl.ioctl(writer, _FICLONE, reader.fileno())
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY):
                raise
            shutil.copyfileobj(reader, writer, 1 << 20)
