"""Mount operations on this host, through mount(2).

Everything that changes the mount table goes through a `Mounter`, so that the rest works the same in
tests without privileges. Source: mount(2), umount(2), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from moorage.linux import libc
from moorage.linux.mounts import (
    NO_PRIVILEGE,
    current_mounts,
    isolate,
    isolate_below,
    mount,
    mounts_below,
)


class Mounter(Protocol):
    """Operations on the mount table. Every call blocks and raises OSError."""

    def mount_tmpfs(self, target: Path, size_bytes: int, *, has_programs: bool = True) -> None:
        """Mount a tmpfs with this size limit in bytes; 0 sets no limit of its own.

        `has_programs` False mounts it without set-user-ID programs and devices.
        """

    def bind(self, source: str, target: Path) -> None:
        """Bind mount a file or directory."""

    def isolate_below(self, path: Path) -> None:
        """Stop propagation from the mounts at or below a path, before they are unmounted."""

    def unmount(self, target: Path) -> None:
        """Undo one mount, on this target alone; no-op if there is none."""

    def is_mounted(self, target: Path) -> bool:
        """Return whether a file system is mounted there."""

    def mounts_below(self, path: Path) -> Iterator[Path]:
        """Return the mount points at or below a path, the deepest first."""


class SystemMounter:
    """The kernel's mount table."""

    def mount_tmpfs(self, target: Path, size_bytes: int, *, has_programs: bool = True) -> None:
        """Mount a tmpfs of at most `size_bytes` at `target`. Raises OSError."""
        flags = 0 if has_programs else NO_PRIVILEGE
        limits = [f"size={size_bytes}"] if size_bytes else []
        try:
            # noswap: Secrets must not be swapped to disk; kernels before 6.4 lack the option.
            mount("tmpfs", target, "tmpfs", ",".join([*limits, "noswap"]), flags)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            mount("tmpfs", target, "tmpfs", ",".join(limits), flags)

    def bind(self, source: str, target: Path) -> None:
        libc.mount(source, target, flags=libc.MS_BIND)

    def isolate_below(self, path: Path) -> None:
        isolate_below(path)

    def unmount(self, target: Path) -> None:
        """Unmount `target`; what the host mounted below it stays mounted on the host."""
        # A bind of a host directory has the host's later mounts below it.
        isolate(target)
        try:
            libc.umount(target, libc.UMOUNT_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return
            # Busy: detach it lazily, so that it is released with its last user.
            libc.umount(target, libc.UMOUNT_NOFOLLOW | libc.MNT_DETACH)

    def is_mounted(self, target: Path) -> bool:
        return os.path.ismount(target)

    def mounts_below(self, path: Path) -> Iterator[Path]:
        points = [mount.point for mount in mounts_below(path, current_mounts())]
        return iter(sorted(points, key=lambda point: len(point.parts), reverse=True))
