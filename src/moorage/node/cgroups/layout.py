"""Where this machine's cgroup controllers are.

Pure, from /proc/self/mountinfo: version 2 alone, version 1 alone, or version 1 with an empty
version 2 beside it. Source: cgroups(7), systemd's "legacy", "hybrid" and "unified" layouts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

V1_CONTROLLERS = frozenset(
    {
        "cpu",
        "cpuacct",
        "cpuset",
        "memory",
        "devices",
        "freezer",
        "blkio",
        "pids",
        "hugetlb",
        "net_cls",
        "net_prio",
        "perf_event",
    }
)


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """Controllers by mount point, and every hierarchy a process may be in.

    `unified` is where version 2 holds the controllers; None on version 1 and on hybrids.
    """

    controllers: dict[str, Path]
    hierarchies: tuple[Path, ...]
    unified: Path | None = None


def layout_of(mountinfo: str) -> CgroupLayout:
    """Read the layout from the text of a mountinfo file."""
    v1: dict[str, Path] = {}
    hierarchies: list[Path] = []
    unified: Path | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, described = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(described) < 3:
            continue
        point = Path(fields[4])
        if described[0] == "cgroup2":
            unified = unified or point
            hierarchies.append(point)
        elif described[0] == "cgroup":
            hierarchies.append(point)
            for name in V1_CONTROLLERS & set(described[2].split(",")):
                v1.setdefault(name, point)
    if v1:
        return CgroupLayout(v1, tuple(dict.fromkeys(hierarchies)))
    return CgroupLayout({}, tuple(hierarchies), unified)
