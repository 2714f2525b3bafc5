"""Hugetlb controller on cgroup version 1, for a hybrid layout that has it on version 2.

crun refuses such a layout; a version 1 mount of the controller makes it work. The mount changes the
whole host, so it is made only where needed, recorded, and removed when no cgroup uses it.
"""

from __future__ import annotations

from pathlib import Path

from moorage.api.logs import Log
from moorage.linux.cgroups import V1_ROOT, Cgroups
from moorage.linux.mounts import current_mounts, mount, unmount
from moorage.linux.trust import PASSABLE, make_private

log = Log(__name__)


def mount_hugetlb_v1(cgroups: Cgroups, marker: Path, point: Path = V1_ROOT / "hugetlb") -> bool:
    """Mount the controller for version 1 if it is on version 2. Return whether it was mounted.

    `marker` is a file that records the mount for `unmount_hugetlb_v1`. Raises OSError.
    """
    if not cgroups.is_hugetlb_apart:
        return False
    # The marker first: a mount without a record would never be removed.
    make_private(marker.parent, PASSABLE)
    marker.write_text(str(point))
    try:
        point.mkdir(exist_ok=True)
        mount("cgroup", point, "cgroup", "hugetlb")
    except OSError:
        # If it is mounted nevertheless, another cluster mounted it and needs the marker.
        if not _is_mounted(point):
            marker.unlink()
        raise
    log.info("hugetlb controller mounted for cgroup version 1", mount=point)
    return True


def unmount_hugetlb_v1(marker: Path) -> None:
    """Unmount the controller if the marker records a mount and no cgroup uses it.

    Raises OSError.
    """
    try:
        point = Path(marker.read_text())
    except FileNotFoundError:
        return
    if _is_mounted(point):
        if any(entry.is_dir() for entry in point.iterdir()):
            log.info("hugetlb controller stays on cgroup version 1: others use it", mount=point)
            return
        unmount(point)
        point.rmdir()
    # Without the mount, another process has unmounted it, or mounting had failed.
    marker.unlink()


def _is_mounted(point: Path) -> bool:
    return any(mount.point == point for mount in current_mounts())
