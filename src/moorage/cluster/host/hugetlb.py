"""Moves the hugetlb controller to cgroup version 1 on a hybrid layout that has it on version 2.

crun refuses such a layout. A version 1 mount of the controller mends that. It is a change to the
whole machine, so it is made only where needed, remembered, and taken back when nobody uses it.
"""

from __future__ import annotations

from pathlib import Path

from moorage.api.logs import Log
from moorage.linux.cgroups import V1_ROOT, Cgroups
from moorage.linux.mounts import current_mounts, mount, unmount
from moorage.linux.private import PASSABLE, make_private

log = Log(__name__)


def join_hugetlb(cgroups: Cgroups, marker: Path, point: Path = V1_ROOT / "hugetlb") -> bool:
    """Mount the controller for version 1 if it is apart; whether that was done.

    `marker` is a file that says, for `part_hugetlb`, that it was us. Raises OSError.
    """
    if not cgroups.is_hugetlb_apart:
        return False
    # The marker first: a mount that nobody remembers would stay for good.
    make_private(marker.parent, PASSABLE)
    marker.write_text(str(point))
    try:
        point.mkdir(exist_ok=True)
        mount("cgroup", point, "cgroup", "hugetlb")
    except OSError:
        # Mounted all the same, another cluster was faster, and the marker is its too.
        if not _is_mounted(point):
            marker.unlink()
        raise
    log.info("hugetlb controller mounted for cgroup version 1", mount=point)
    return True


def part_hugetlb(marker: Path) -> None:
    """Take the mount back if it was ours and no cgroup is in it; else it stays. Raises OSError."""
    try:
        point = Path(marker.read_text())
    except FileNotFoundError:
        return
    if _is_mounted(point):
        if any(each.is_dir() for each in point.iterdir()):
            log.info("hugetlb controller stays on cgroup version 1: others use it", mount=point)
            return
        unmount(point)
        point.rmdir()
    # Without the mount somebody else took it back, or it never came to be.
    marker.unlink()


def _is_mounted(point: Path) -> bool:
    return any(each.point == point for each in current_mounts())
