"""Node pressure: shortage of memory, disk or process IDs.

Pure, from a few numbers; the thresholds are the kubelet's defaults for hard eviction. The agent
reports pressure, so that no more pods are scheduled to the node; it does not evict pods for it.
Source: kubelet `eviction` defaults.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from moorage.linux.host import parse_meminfo

_MEMORY_LEFT_BYTES = 100 * 1024 * 1024
_DISK_LEFT = 0.10
_INODES_LEFT = 0.05
_PIDS_LEFT = 0.05


@dataclass(frozen=True, slots=True)
class Supply:
    """Resources available on the host; shares are between 0 and 1."""

    memory_bytes: int
    disk_share: float
    inodes_share: float
    pids_share: float


@dataclass(frozen=True, slots=True)
class Pressure:
    """Resources that the host is short of."""

    memory: bool = False
    disk: bool = False
    pids: bool = False


def pressure_of(supply: Supply) -> Pressure:
    """Return which resources are below the eviction thresholds."""
    return Pressure(
        memory=supply.memory_bytes < _MEMORY_LEFT_BYTES,
        disk=supply.disk_share < _DISK_LEFT or supply.inodes_share < _INODES_LEFT,
        pids=supply.pids_share < _PIDS_LEFT,
    )


def read_supply(disk: Path) -> Supply:
    """Measure the available resources; `disk` is a path on the disk that pods use. Blocks."""
    memory = parse_meminfo(Path("/proc/meminfo").read_text())
    room = os.statvfs(disk)
    # "1/234": runnable and existing tasks.
    tasks = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    return Supply(
        memory_bytes=memory.get("MemAvailable", memory.get("MemFree", 0)),
        disk_share=room.f_bavail / room.f_blocks if room.f_blocks else 1.0,
        inodes_share=room.f_favail / room.f_files if room.f_files else 1.0,
        pids_share=max(0.0, 1.0 - tasks / most),
    )
