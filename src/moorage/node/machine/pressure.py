"""Node pressure as it is observed: measured on this host, and the conditions that hold.

Memory is what the kernel can still give: /proc/meminfo's MemAvailable for the node, and for all
pods together their limit less what cannot be reclaimed, on cgroup version 1, hybrid and 2. A signal
that cannot be measured is left out. Source: kubelet `makeSignalObservations`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from moorage.linux.cgroups import OUTSIDE
from moorage.linux.host import parse_meminfo
from moorage.node.cgroups.tree import CgroupTree, cgroup_usage, total
from moorage.node.cgroups.values import KUBEPODS
from moorage.node.pressure.thresholds import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    IMAGEFS_AVAILABLE,
    IMAGEFS_INODES_FREE,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    PID_AVAILABLE,
    Observation,
    Observations,
)

_MEMORY = Path("/proc/meminfo")
_TASKS = Path("/proc/loadavg")


class NodePressure:
    """The pressure conditions that hold on this node now, in the order of `CONDITIONS`."""

    def __init__(self) -> None:
        self._conditions: tuple[str, ...] = ()
        self._listeners: list[Callable[[], None]] = []

    @property
    def conditions(self) -> tuple[str, ...]:
        return self._conditions

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Register a function to call after a change. It must not block."""
        self._listeners.append(listener)

    def update(self, conditions: tuple[str, ...]) -> None:
        """Set the conditions, and call the listeners if they have changed."""
        if conditions != self._conditions:
            self._conditions = conditions
            for listener in self._listeners:
                listener()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Where this node's supply is read.

    `disk` is a path on the file system that pods' volumes and logs are on; `pods_memory_bytes` the
    limit of all pods together.
    """

    disk: Path
    tree: CgroupTree
    max_pids: int
    pods_memory_bytes: int

    def read(self, image_disk: Path | None) -> Observations:
        """Measure the supply; `image_disk` is a path on the images' file system. Blocks.

        Raises OSError.
        """
        seen = {MEMORY_AVAILABLE: memory_seen(_MEMORY.read_text())}
        seen |= _disk_seen(self.disk, NODEFS_AVAILABLE, NODEFS_INODES_FREE)
        if image_disk is not None:
            # An agent in a container may not see the engine's directory.
            with suppress(FileNotFoundError):
                seen |= _disk_seen(image_disk, IMAGEFS_AVAILABLE, IMAGEFS_INODES_FREE)
        seen[PID_AVAILABLE] = pids_seen(_TASKS.read_text(), self.max_pids)
        pods = self._pods_memory()
        return seen if pods is None else {**seen, ALLOCATABLE_MEMORY_AVAILABLE: pods}

    def has_image_disk(self, image_disk: Path | None) -> bool:
        """Return whether images are on another file system than volumes. Blocks. Raises OSError."""
        if image_disk is None:
            return False
        try:
            return image_disk.stat().st_dev != self.disk.stat().st_dev
        except FileNotFoundError:
            return False

    def _pods_memory(self) -> Observation | None:
        usage = cgroup_usage(self.tree.cgroups, self.tree.path(KUBEPODS))
        if usage is None or not self.pods_memory_bytes:
            return None
        # Virtual machines of pods that are outside their pods' cgroups.
        guests = cgroup_usage(self.tree.cgroups, OUTSIDE)
        used = usage if guests is None else total((usage, guests))
        available = self.pods_memory_bytes - used.unreclaimable_bytes
        return Observation(max(0, available), self.pods_memory_bytes)


def memory_seen(meminfo: str) -> Observation:
    """Return the memory in the text of /proc/meminfo."""
    amounts = parse_meminfo(meminfo)
    return Observation(amounts.get("MemAvailable", amounts.get("MemFree", 0)), amounts["MemTotal"])


def pids_seen(load: str, max_pids: int) -> Observation:
    """Return the process IDs left; the text is that of /proc/loadavg: "… 1/234 …" of tasks."""
    tasks = int(load.split()[3].partition("/")[2])
    return Observation(max(0, max_pids - tasks), max_pids)


def _disk_seen(path: Path, bytes_signal: str, inodes_signal: str) -> dict[str, Observation]:
    room = os.statvfs(path)
    seen = {}
    if room.f_blocks:
        size = room.f_frsize
        seen[bytes_signal] = Observation(room.f_bavail * size, room.f_blocks * size)
    if room.f_files:
        # Some file systems have no count of inodes; those never run short.
        seen[inodes_signal] = Observation(room.f_favail, room.f_files)
    return seen
