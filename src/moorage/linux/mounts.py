"""Mount table, mount and unmount.

Source: proc(5), "/proc/pid/mountinfo"; mount(2); umount2(2).
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from moorage.linux import libc
from moorage.linux.descent import mount_id
from moorage.linux.trees import remove_tree

NO_PRIVILEGE = libc.MS_NOSUID | libc.MS_NODEV
"""MS_NOSUID and MS_NODEV: set-user-id bits, capabilities and devices have no effect."""
NO_EXECUTION = libc.MS_NOEXEC
"""MS_NOEXEC."""

MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount: its mount point, file system type, source and file system options."""

    point: Path
    kind: str
    source: str
    options: frozenset[str]


@dataclass(frozen=True, slots=True)
class MountSource:
    """What mount(2) mounts: the kind of file system, its source, its options."""

    kind: str
    source: str
    options: tuple[str, ...] = ()


def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """Return the mounts in the text of a mountinfo file, in the kernel's order: parents first."""
    # A name may contain what `splitlines` splits at; the kernel escapes newlines only.
    return tuple(filter(None, map(_parse, mountinfo.split("\n"))))


def current_mounts() -> tuple[Mount, ...]:
    """Return the mounts of this mount namespace."""
    return parse_mounts(os.fsdecode(MOUNTINFO.read_bytes()))


def mounts_below(directory: Path, mounts: Iterable[Mount]) -> list[Mount]:
    """Return the mounts at or below a directory, innermost first: the order to unmount them in."""
    return [mount for mount in reversed(tuple(mounts)) if mount.point.is_relative_to(directory)]


def mount(source: str, point: Path, kind: str, options: str, flags: int = 0) -> None:
    """Mount a file system; `flags` are those of mount(2). Raises OSError."""
    libc.mount(source, point, kind, flags, options)


def unmount(point: Path) -> None:
    """Unmount lazily: at once from the tree, and for current users when they are done. Raises
    OSError.
    """
    libc.umount(point, libc.MNT_DETACH)


def isolate_below(directory: Path) -> None:
    """Stop propagation from the mounts at or below a directory, for their removal. Raises OSError.

    An unmount is propagated to the peers of the mount that it happens in: below a bind of a host
    directory, it would unmount the host's own file system. Source: mount_namespaces(7).
    """
    for entry in reversed(mounts_below(directory, current_mounts())):
        isolate(entry.point)


def isolate(point: Path) -> None:
    """Stop propagation from a mount and those below it; a path without a mount is no error.

    Links are not followed. Raises OSError.
    """
    try:
        descriptor = os.open(point, os.O_PATH | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        libc.mount(None, Path(f"/proc/self/fd/{descriptor}"), flags=libc.MS_PRIVATE | libc.MS_REC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise OSError(error.errno, error.strerror, str(point)) from error
    finally:
        os.close(descriptor)


def _parse(line: str) -> Mount | None:
    # The number of fields before the dash varies.
    left, dash, right = line.partition(" - ")
    place, described = left.split(" "), right.split(" ")
    if not dash or len(place) < 5 or len(described) < 3:
        return None
    point = _OCTAL.sub(lambda match: chr(int(match.group(1), 8)), place[4])
    return Mount(Path(point), described[0], described[1], frozenset(described[2].split(",")))


# Bind mounts, and whether a path is a mount point.
#
# Source: mount(2), MS_BIND and MS_REMOUNT; proc(5), /proc/pid/fdinfo.


def bind(
    source: Path,
    target: Path,
    *,
    is_read_only: bool = False,
    mount: Callable[..., None] = libc.mount,
) -> None:
    """Bind mount `source` on `target`, without the mounts below it. Raises OSError; nothing stays
    mounted then.
    """
    mount(source, target, flags=libc.MS_BIND)
    try:
        mount(None, target, flags=libc.MS_PRIVATE)
        if is_read_only:
            # The kernel accepts the read-only flag of a bind mount only on a remount.
            flags = libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY
            mount(None, target, flags=flags)
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


# Overlay support of a directory's file system, tested by mounting one.
#
# The kernel refuses an overlay on an overlay (a data directory inside a container) only when it is
# mounted, and support for another file system below one depends on its features.

_DIRECTORIES = ("lower", "upper", "work", "merged")


def supports_overlay(directory: Path) -> bool:
    """Return whether an overlay with its layers in a directory can be mounted.

    False without the privilege. The directory must exist. Leaves nothing behind.
    """
    try:
        scratch = Path(tempfile.mkdtemp(prefix=".overlay-", dir=directory))
    except OSError:
        return False
    try:
        lower, upper, work, merged = (scratch / name for name in _DIRECTORIES)
        try:
            for path in (lower, upper, work, merged):
                path.mkdir()
            options = f"lowerdir={lower},upperdir={upper},workdir={work}"
            mount("overlay", merged, "overlay", options)
        except OSError:
            return False
        unmount(merged)
        return True
    finally:
        remove_tree(scratch)
