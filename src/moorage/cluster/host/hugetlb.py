"""Hugetlb controller on cgroup version 1, for a hybrid layout that has it on version 2.

crun refuses such a layout; a version 1 mount of the controller makes it work. The mount changes the
whole host, so it is made only where needed, recorded, and removed when no cgroup uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from moorage.api.logs import Log
from moorage.linux.cgroups import V1_ROOT, Cgroups
from moorage.linux.mounts import Mount, current_mounts, mount, unmount
from moorage.linux.trust import PASSABLE, make_private

log = Log(__name__)


class HostMounts:
    """The host's mounts."""

    def mount(self, source: str, point: Path, kind: str, options: str) -> None:
        mount(source, point, kind, options)

    def unmount(self, point: Path) -> None:
        unmount(point)

    def current(self) -> Iterable[Mount]:
        return current_mounts()


_MOUNTS = HostMounts()


def mount_hugetlb_v1(
    cgroups: Cgroups,
    marker: Path,
    point: Path = V1_ROOT / "hugetlb",
    mounts: HostMounts = _MOUNTS,
) -> bool:
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
        mounts.mount("cgroup", point, "cgroup", "hugetlb")
    except OSError:
        # If it is mounted nevertheless, another cluster mounted it and needs the marker.
        if not _is_mounted(point, mounts):
            marker.unlink()
        raise
    log.info("hugetlb controller mounted for cgroup version 1", mount=point)
    return True


def unmount_hugetlb_v1(marker: Path, mounts: HostMounts = _MOUNTS) -> None:
    """Unmount the controller if the marker records a mount and no cgroup uses it.

    Raises OSError.
    """
    try:
        point = Path(marker.read_text())
    except FileNotFoundError:
        return
    if _is_mounted(point, mounts):
        if any(entry.is_dir() for entry in point.iterdir()):
            log.info("hugetlb controller stays on cgroup version 1: others use it", mount=point)
            return
        mounts.unmount(point)
        point.rmdir()
    # Without the mount, another process has unmounted it, or mounting had failed.
    marker.unlink()


def _is_mounted(point: Path, mounts: HostMounts) -> bool:
    return any(mount.point == point for mount in mounts.current())
