"""Snapshotter protocol: from layers to a container's root filesystem.

An implementation is synchronous, keeps no state in memory, and owns a directory (`home`) for each
root filesystem. The caller unmounts the target.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from moorage.engine.images.copying import Owner, TreeCopy, opened
from moorage.engine.images.layers import read_record, tree_of
from moorage.linux.descent import Descent
from moorage.linux.idmap import IdMappings, mount_idmapped, user_namespace
from moorage.linux.mounts import MountSource, bind, mount, unmount
from moorage.linux.trees import make_directories, remove_entry, remove_tree

# Native snapshotter: root filesystems by copying, where overlayfs is refused, as in a container.
#
# Each container has its own copy of the image's files; blocks are shared where the file system
# supports reflinks. Slow and large, but it works everywhere. Source: OCI image-spec, "Applying
# Changesets".

_ROOT = "root"
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


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
                hide(scratch, record.whiteouts, record.opaques)
                TreeCopy(owner, set(record.whiteouts)).tree(tree_of(layer), scratch)
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


def hide(root: Path, whiteouts: Collection[str], opaques: Collection[str]) -> None:
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
    with opened(root) as top, Descent(top) as place:
        try:
            for part in parts:
                place.enter(part)
        except OSError as error:
            if error.errno not in _ABSENT:
                raise
            yield None
        else:
            yield place


# Overlayfs snapshotter: layers are shared, and a container owns only what it writes.
#
# One mount(2), no program. The kernel limits options to a page, so where the directories' names
# are too long or contain separators, they are named by descriptors: some 220 layers fit then.
# Budget of a mount: 2 ms (`bench/hotpaths.py`). Source: kernel documentation, "Overlay
# Filesystem".

_OPTIONS_LIMIT_BYTES = os.sysconf("SC_PAGE_SIZE") - 1
_SPECIAL = re.compile(r"[:,\\]")
_UPPER, _WORK, _EMPTY = "upper", "work", "empty"


class Overlayfs:
    """The snapshotter `overlayfs`. `scratch` is a directory for short-lived mounts."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def mount(
        self, home: Path, layers: Sequence[Path], target: Path, mappings: IdMappings | None
    ) -> None:
        """Mount the layers with a writable upper directory at `target`; create it when absent."""
        upper, work = home / _UPPER, home / _WORK
        lowers = _lowers(home, layers)
        if not upper.is_dir():
            # The upper directory is the root that a container sees. The work directory is created
            # first, so that an upper directory implies both.
            work.mkdir(exist_ok=True, mode=0o700)
            _make_alike(upper, lowers[0], mappings)
        with mapped_layers(lowers, mappings, self._scratch) as shown:
            _mount(target, shown, (upper, work))

    def mount_read_only(self, home: Path, layers: Sequence[Path], target: Path) -> None:
        empty = home / _EMPTY
        empty.mkdir(exist_ok=True)
        # Without an upper directory the kernel requires two lower ones.
        _mount(target, [*_lowers(home, layers), empty], ())

    def sources(self, home: Path, layers: Sequence[Path]) -> tuple[MountSource, ...]:
        paths = [str(path) for path in (*_lowers(home, layers), home / _UPPER, home / _WORK)]
        text = options(paths[:-2], paths[-2:])
        if not _fits(text, paths):
            return ()
        return (MountSource("overlay", "overlay", tuple(text.split(","))),)

    def writable(self, home: Path) -> Path:
        return home / _UPPER


def options(lowers: Sequence[str], writable: Sequence[str]) -> str:
    """Return the mount options: lower directories from the top down, then upper and work
    directory.
    """
    words = [f"lowerdir={':'.join(lowers)}"]
    words += [f"{key}={path}" for key, path in zip(("upperdir", "workdir"), writable, strict=False)]
    return ",".join(words)


def _lowers(home: Path, layers: Sequence[Path]) -> list[Path]:
    """Return the lower directories from the top down, as overlayfs requires."""
    if layers:
        return [tree_of(layer) for layer in reversed(layers)]
    empty = home / _EMPTY
    # An image may have no layer; the container then sees this directory as its root.
    make_directories(empty, 0o755)
    return [empty]


def _make_alike(upper: Path, top: Path, mappings: IdMappings | None) -> None:
    """Create a directory with the mode and owner of the topmost layer's root."""
    status = top.stat()
    scratch = upper.with_name(f".{upper.name}.new")
    scratch.mkdir(exist_ok=True)
    uid, gid = mappings.root if mappings is not None else (status.st_uid, status.st_gid)
    os.chown(scratch, uid, gid)
    scratch.chmod(status.st_mode & 0o7777)
    scratch.rename(upper)


def _mount(target: Path, lowers: Sequence[Path], writable: Sequence[Path]) -> None:
    paths = [str(path) for path in (*lowers, *writable)]
    text = options(paths[: len(lowers)], paths[len(lowers) :])
    if _fits(text, paths):
        mount("overlay", target, "overlay", text)
        return
    with ExitStack() as stack:
        named = []
        for path in paths:
            descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            named.append(f"/proc/self/fd/{descriptor}")
        mount("overlay", target, "overlay", options(named[: len(lowers)], named[len(lowers) :]))


def _fits(text: str, paths: Sequence[str]) -> bool:
    """Return whether mount(2) takes these options with these directories by name."""
    return len(os.fsencode(text)) <= _OPTIONS_LIMIT_BYTES and not any(map(_SPECIAL.search, paths))


@contextmanager
def mapped_layers(
    lowers: Sequence[Path],
    mappings: IdMappings | None,
    scratch: Path,
    open_namespace: Callable[[IdMappings], AbstractContextManager[int]] = user_namespace,
    mount: Callable[[Path, Path, int], None] = mount_idmapped,
    unmount: Callable[[Path], object] = unmount,
) -> Iterator[list[Path]]:
    """Yield idmapped mounts of the directories while a mount on them is created."""
    if mappings is None:
        yield list(lowers)
        return
    with ExitStack() as stack:
        namespace = stack.enter_context(open_namespace(mappings))
        place = Path(tempfile.mkdtemp(prefix="idmap-", dir=scratch))
        stack.callback(place.rmdir)
        shown: list[Path] = []
        # One idmapped mount for each parent directory of layers: usually one for all.
        points: dict[Path, Path] = {}
        for lower in lowers:
            holder = lower.parent.parent
            point = points.get(holder)
            if point is None:
                point = place / str(len(points))
                point.mkdir()
                stack.callback(point.rmdir)
                mount(holder, point, namespace)
                stack.callback(unmount, point)
                points[holder] = point
            shown.append(point / lower.relative_to(holder))
        yield shown


class Snapshotter(Protocol):
    """Layers are directories of the store (see `layers`), from the bottom up."""

    def mount(
        self, home: Path, layers: Sequence[Path], target: Path, mappings: IdMappings | None
    ) -> None:
        """Mount the layers writable at `target`; earlier writes are kept.

        With mappings, owners are those of the user namespace. Blocks. Raises OSError; nothing is
        mounted then.
        """

    def mount_read_only(self, home: Path, layers: Sequence[Path], target: Path) -> None:
        """Mount the layers read-only at `target`. Blocks. Raises OSError."""

    def sources(self, home: Path, layers: Sequence[Path]) -> tuple[MountSource, ...]:
        """Return the mount of `mount` without mappings, for a runtime that mounts it itself.

        Empty where it cannot be said in words that mount(2) takes in any directory.
        """

    def writable(self, home: Path) -> Path:
        """Return the directory of the data that a writable mount's container wrote."""
