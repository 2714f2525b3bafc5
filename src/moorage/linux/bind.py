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
    """Bind mount `source` on `target`, without the mounts below it. Raises OSError; nothing stays
    mounted then.
    """
    libc.mount(source, target, flags=libc.MS_BIND)
    try:
        libc.mount(None, target, flags=libc.MS_PRIVATE)
        if is_read_only:
            # The kernel accepts the read-only flag of a bind mount only on a remount.
            flags = libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY
            libc.mount(None, target, flags=flags)
    except BaseException:
        unmount(target)
        raise


def is_mount_point(path: Path) -> bool:
    """Return whether a path is a mount point, bind mounts included; False for an absent path."""
    try:
        return _mount_id(path) != _mount_id(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        return False


def unmount_all(point: Path) -> None:
    """Unmount everything mounted on a path; nothing mounted is no error. Raises OSError."""
    while is_mount_point(point):
        unmount(point)


def _mount_id(path: Path) -> bytes:
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        return mount_id(descriptor)
    finally:
        os.close(descriptor)
