"""Mount operations on this host, through mount(2).

Everything that changes the mount table goes through a `Mounter`, so that the rest works the same in
tests without privileges. Source: mount(2), umount(2), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
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
from moorage.node.config.errors import ConfigError

# Memory limit for the files of one pod's volumes.
#
# The node agent writes ConfigMaps, Secrets, the downward API and tokens, so no limit of the pod's
# cgroup applies to them. One small object may appear in thousands of volumes, and each tmpfs file
# takes whole pages: a pod of a few kilobytes could take all of the node's memory.

POD_BYTES = 128 * 1024 * 1024
# Measured on Linux 6.18: a mounted tmpfs takes 5 KiB, and the same again in each container; a file
# its pages and 1 KiB; the link to it 0.6 KiB.
_VOLUME_BYTES = 64 * 1024
_FILE_BYTES = 2 * 1024
_PAGE_BYTES = 4 * 1024


class PodMemory:
    """Adds up the memory of one pod's volumes."""

    def __init__(self, most_bytes: int = POD_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0

    def add_volume(self) -> None:
        """Count a volume in memory. Raises ConfigError when the pod's volumes exceed the limit."""
        self._add(_VOLUME_BYTES)

    def add_files(self, sizes: Iterable[int]) -> None:
        """Count files of these sizes in bytes.

        Raises ConfigError when the pod's volumes exceed the limit.
        """
        self._add(sum(-(-size // _PAGE_BYTES) * _PAGE_BYTES + _FILE_BYTES for size in sizes))

    def _add(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise ConfigError(
                f"the pod's volumes take more than {self._most_bytes} bytes of the node's memory "
                f"together (each counts {_VOLUME_BYTES}, each file its pages and {_FILE_BYTES}); "
                "use fewer volumes, or fewer keys with `items`"
            )


class ObjectMemory:
    """Adds up the objects in one pod's volumes."""

    def __init__(self, most_bytes: int = POD_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0

    def add(self, values: Iterable[str]) -> None:
        """Count an object's values. Raises ConfigError when the pod's objects exceed the limit."""
        self._bytes += sum(map(len, values))
        if self._bytes > self._most_bytes:
            raise ConfigError(
                "the ConfigMaps and Secrets of the pod's volumes are larger than "
                f"{self._most_bytes} bytes together; use fewer or smaller ones"
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
