"""What is mounted where, and the two calls that change it.

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
"""MS_NOSUID and MS_NODEV: set-user-id bits, capabilities and devices in it have no effect."""
NO_EXECUTION = libc.MS_NOEXEC
"""MS_NOEXEC."""

MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount: where, which kind of file system, and that file system's own options."""

    point: Path
    kind: str
    source: str
    options: frozenset[str]


def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """The mounts in the text of a mountinfo file, in the kernel's order: parents first."""
    # Names may hold what `splitlines` takes for a line's end; the kernel escapes newlines only.
    return tuple(filter(None, map(_parse, mountinfo.split("\n"))))


def current_mounts() -> tuple[Mount, ...]:
    """The mounts this process sees."""
    return parse_mounts(os.fsdecode(MOUNTINFO.read_bytes()))


def mounts_below(directory: Path, mounts: Iterable[Mount]) -> list[Mount]:
    """The mounts at a directory or under it, innermost first: the order to unmount them in."""
    return [each for each in reversed(tuple(mounts)) if each.point.is_relative_to(directory)]


def mount(source: str, point: Path, kind: str, options: str, flags: int = 0) -> None:
    """Mount a file system; `flags` are of mount(2). Raises OSError."""
    libc.mount(source, point, kind, flags, options)


def unmount(point: Path) -> None:
    """Take a mount away, at once for new users and later for those in it. Raises OSError."""
    libc.umount(point, libc.MNT_DETACH)


def _parse(line: str) -> Mount | None:
    # The number of fields before the dash varies, so the line is cut at the dash.
    left, dash, right = line.partition(" - ")
    place, described = left.split(" "), right.split(" ")
    if not dash or len(place) < 5 or len(described) < 3:
        return None
    point = _OCTAL.sub(lambda found: chr(int(found.group(1), 8)), place[4])
    return Mount(Path(point), described[0], described[1], frozenset(described[2].split(",")))
