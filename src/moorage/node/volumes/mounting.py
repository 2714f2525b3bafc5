"""Mount operations on this host, through mount(2).

Everything that changes the mount table goes through a `Mounter`, so that the rest works the same in
tests without privileges. Source: mount(2), umount(2), proc_pid_mountinfo(5).
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from moorage.linux.mounts import NO_PRIVILEGE

_MS_BIND = 0x1000
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8
_MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")

_libc = ctypes.CDLL(None, use_errno=True)


class Mounter(Protocol):
    """Operations on the mount table. Every call blocks and raises OSError."""

    def mount_tmpfs(self, target: Path, size_bytes: int, *, has_programs: bool = True) -> None:
        """Mount a tmpfs with this size limit in bytes; 0 sets no limit of its own.

        `has_programs` False mounts it without set-user-ID programs and devices.
        """

    def bind(self, source: str, target: Path) -> None:
        """Bind mount a file or directory."""

    def unmount(self, target: Path) -> None:
        """Undo one mount; no-op if there is none."""

    def is_mounted(self, target: Path) -> bool:
        """Return whether a file system is mounted there."""

    def mounts_below(self, path: Path) -> Iterator[Path]:
        """Return the mount points at or below a path, the deepest first."""


class SystemMounter:
    """The kernel's mount table."""

    def mount_tmpfs(self, target: Path, size_bytes: int, *, has_programs: bool = True) -> None:
        flags = 0 if has_programs else NO_PRIVILEGE
        limits = [f"size={size_bytes}"] if size_bytes else []
        try:
            # noswap: Secrets must not be swapped to disk; kernels before 6.4 lack the option.
            _mount("tmpfs", target, "tmpfs", flags, ",".join([*limits, "noswap"]))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            _mount("tmpfs", target, "tmpfs", flags, ",".join(limits))

    def bind(self, source: str, target: Path) -> None:
        _mount(source, target, None, _MS_BIND, None)

    def unmount(self, target: Path) -> None:
        if _libc.umount2(os.fsencode(target), _UMOUNT_NOFOLLOW) == 0:
            return
        code = ctypes.get_errno()
        if code in (errno.EINVAL, errno.ENOENT):
            return
        # Busy: detach it lazily, so that it is released with its last user.
        if _libc.umount2(os.fsencode(target), _UMOUNT_NOFOLLOW | _MNT_DETACH) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(target))

    def is_mounted(self, target: Path) -> bool:
        return os.path.ismount(target)

    def mounts_below(self, path: Path) -> Iterator[Path]:
        found = [
            point
            for point in mount_points(_MOUNTINFO.read_bytes())
            if point == path or path in point.parents
        ]
        return iter(sorted(found, key=lambda point: len(point.parts), reverse=True))


def mount_points(mountinfo: bytes) -> Iterator[Path]:
    """Yield the mount points in a mountinfo file."""
    # Not splitlines(): a name may contain a carriage return, as the kernel escapes only newlines.
    for line in mountinfo.split(b"\n"):
        fields = line.split(b" ")
        if len(fields) > 4:
            plain = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), fields[4])
            yield Path(os.fsdecode(plain))


def _mount(source: str, target: Path, kind: str | None, flags: int, options: str | None) -> None:
    status = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(kind) if kind is not None else None,
        ctypes.c_ulong(flags),
        os.fsencode(options) if options is not None else None,
    )
    if status != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), str(target))
