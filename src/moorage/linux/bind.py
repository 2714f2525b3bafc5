"""Showing a directory or file at a second place, and whether a place is a mount at all.

Source: mount(2), MS_BIND and MS_REMOUNT; openat2(2) RESOLVE_IN_ROOT; proc(5), /proc/pid/fdinfo.
"""

from __future__ import annotations

import os
from pathlib import Path

from moorage.linux import libc
from moorage.linux.descent import mount_id
from moorage.linux.mounts import unmount
from moorage.linux.openat import IN_ROOT, NO_MAGICLINKS, openat2


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


def open_in_root(root: Path, path: str) -> int:
    """A descriptor (O_PATH) of a path that cannot leave `root`, whatever links it holds.

    Raises OSError. Needs Linux 5.6.
    """
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        return openat2(directory, path, os.O_PATH, IN_ROOT | NO_MAGICLINKS)
    finally:
        os.close(directory)


def _mount_id(path: Path) -> bytes:
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        return mount_id(descriptor)
    finally:
        os.close(descriptor)
