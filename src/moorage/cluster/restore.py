"""Restore of a cluster from a backup archive, into its own or another data directory.

The archive is unpacked and verified beside the data first. What it replaces is moved aside, never
removed. A restore that is cut off can be made again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from moorage.apiserver.storage import StoreBrokenError, accept_copy, check_copy
from moorage.cluster import backup
from moorage.cluster.backup import BackupError, Manifest
from moorage.cluster.layout import Layout, check_directory
from moorage.cluster.settings import load
from moorage.cluster.supervision.supervisor import AlreadyRunningError, running_pid
from moorage.linux.atomic_file import rename_durably
from moorage.linux.locks import exclusive
from moorage.linux.trees import remove_tree
from moorage.linux.trust import make_private


def restore(layout: Layout, archive: Path, *, replaces: bool, now: datetime) -> Manifest:
    """Put a backup in the place of a stopped cluster, or make a cluster of it; return its manifest.

    With `replaces` the present database, keys and settings are moved to `layout.replaced`; without
    it a directory that has a cluster is refused. The next start gives out revisions above all
    earlier ones, so that clients list again. Blocks.

    Raises BackupError, SettingsError for a directory that is not a cluster's, AlreadyRunningError
    while the cluster runs, OSError.
    """
    check_directory(layout.root)
    make_private(layout.root)
    with exclusive(layout.change_lock):
        pid = running_pid(layout)
        if pid is not None:
            raise AlreadyRunningError(layout, pid)
        if not replaces and any(path.exists() for path in _parts(layout)):
            raise BackupError(
                f"there is a cluster in {layout.root}; with --replace it is moved aside, to "
                f"{layout.replaced}"
            )
        with _unpacked(layout) as unpacked:
            manifest = backup.unpack(archive, unpacked)
            _check(archive, unpacked)
            _move_aside(layout, now)
            _put_in_place(layout, unpacked, manifest)
    return manifest


@contextmanager
def _unpacked(layout: Layout) -> Iterator[Path]:
    """Make the directory to unpack into; one that a killed restore left is removed first."""
    _remove(layout.unpacked)
    layout.unpacked.mkdir(mode=0o700)
    try:
        yield layout.unpacked
    finally:
        _remove(layout.unpacked)


def _remove(directory: Path) -> None:
    if directory.exists():
        remove_tree(directory)


def _parts(layout: Layout) -> tuple[Path, ...]:
    return layout.settings, layout.database, layout.pki


def _check(archive: Path, unpacked: Path) -> None:
    try:
        check_copy(unpacked / backup.DATABASE)
    except StoreBrokenError as error:
        raise BackupError(f"{archive}: {error}") from error
    load(unpacked / backup.SETTINGS)


# A restore may be killed at any point: until the last rename a start is refused, by the mark that
# records another database or because there are no settings, and names what is missing.


def _move_aside(layout: Layout, now: datetime) -> None:
    make_private(layout.replaced)
    kept = layout.replaced / now.strftime("%Y%m%dT%H%M%S.%fZ")
    for path in (layout.database.parent, layout.pki, layout.settings):
        if path.exists():
            kept.mkdir(mode=0o700, exist_ok=True)
            rename_durably(path, kept / path.name)


def _put_in_place(layout: Layout, unpacked: Path, manifest: Manifest) -> None:
    layout.database.parent.mkdir(mode=0o700)
    rename_durably(unpacked / backup.DATABASE, layout.database)
    rename_durably(unpacked / backup.PKI, layout.pki)
    try:
        accept_copy(layout.store_mark, manifest.recorded)
    except StoreBrokenError as error:
        raise BackupError(str(error)) from error
    # Pods of what was replaced end at the next start, unless the store restored has them too.
    layout.node_store.unlink(missing_ok=True)
    rename_durably(unpacked / backup.SETTINGS, layout.settings)
