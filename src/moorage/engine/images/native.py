"""Native snapshotter: root filesystems by copying, where overlayfs is refused, as in a container.

Each container has its own copy of the image's files; blocks are shared where the file system
supports reflinks. Slow and large, but it works everywhere. Source: OCI image-spec, "Applying
Changesets".
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from moorage.engine.images.copying import Owner, TreeCopy, opened
from moorage.engine.images.layers import read_record, tree_of
from moorage.linux.bind import bind
from moorage.linux.descent import Descent
from moorage.linux.idmap import IdMappings
from moorage.linux.mounts import MountSource
from moorage.linux.trees import remove_entry, remove_tree

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
                _hide(scratch, record.whiteouts, record.opaques)
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
