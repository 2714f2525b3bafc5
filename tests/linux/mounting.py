"""A host directory that is bound elsewhere, with a file system mounted in it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moorage.linux import libc
from moorage.linux.mounts import mount, unmount

_MS_SHARED = 1 << 20


@contextmanager
def shared_tree(root: Path) -> Iterator[Path]:
    """Mount a shared tmpfs on a directory, as systemd does with a host's root. Yields it."""
    mount("host", root, "tmpfs", "size=1m")
    libc.mount(None, root, flags=_MS_SHARED)
    try:
        yield root
    finally:
        libc.mount(None, root, flags=libc.MS_PRIVATE | libc.MS_REC)
        unmount(root)


def bind_and_mount_disk(source: Path, target: Path) -> Path:
    """Bind `source` at `target`, then mount a disk in `source`. Returns its mount point."""
    disk = source / "disk"
    disk.mkdir(parents=True)
    target.mkdir(parents=True, exist_ok=True)
    libc.mount(str(source), target, flags=libc.MS_BIND)
    mount("disk", disk, "tmpfs", "size=64k")
    # The mount has been propagated to the bind.
    assert (target / "disk").is_mount()
    return disk
