"""Mount table, mount and unmount.

Source: proc(5), "/proc/pid/mountinfo"; mount(2); umount2(2).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from moorage.linux import libc

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


def _parse(line: str) -> Mount | None:
    # The number of fields before the dash varies.
    left, dash, right = line.partition(" - ")
    place, described = left.split(" "), right.split(" ")
    if not dash or len(place) < 5 or len(described) < 3:
        return None
    point = _OCTAL.sub(lambda match: chr(int(match.group(1), 8)), place[4])
    return Mount(Path(point), described[0], described[1], frozenset(described[2].split(",")))
