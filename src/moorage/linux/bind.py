"""Bind mounts, and whether a path is a mount point.

Source: mount(2), MS_BIND and MS_REMOUNT; proc(5), /proc/pid/fdinfo.
"""

from __future__ import annotations

import os
from pathlib import Path

from moorage.linux import libc
from moorage.linux.descent import mount_id
from moorage.linux.mounts import unmount


def bind(source: Path, target: Path, *, is_read_only: bool = False) -> None:
    """Mount what is at `source` on `target` too; nothing stays mounted on failure. Raises OSError.

    The mounts below the source don't come along.
    """
    libc.mount(source, target, flags=libc.MS_BIND)
    try:
        libc.mount(None, target, flags=libc.MS_PRIVATE)
        if is_read_only:
            # The kernel takes the read-only flag of a bind only in a second step.
            flags = libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY
            libc.mount(None, target, flags=flags)
    except BaseException:
        unmount(target)
        raise


def is_mount_point(path: Path) -> bool:
    """Whether something is mounted exactly there, binds included; false where nothing is."""
    try:
        return _mount_id(path) != _mount_id(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        return False


def unmount_all(point: Path) -> None:
    """Take away all that is mounted on a place, however often; nothing there is no error.

    Raises OSError.
    """
    while is_mount_point(point):
        unmount(point)


def _mount_id(path: Path) -> bytes:
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        return mount_id(descriptor)
    finally:
        os.close(descriptor)
