"""Eviction signals: what is measured, which resource it starves, which condition it reports.

The table's order is the order in which starved resources are reclaimed: memory first. Source:
kubelet `eviction/api/types.go`, `eviction/helpers.go`; docs "Node-pressure Eviction".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moorage.api.quantity import NANO, Family, Quantity

MEMORY_AVAILABLE = "memory.available"
ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
NODEFS_AVAILABLE = "nodefs.available"
NODEFS_INODES_FREE = "nodefs.inodesFree"
IMAGEFS_AVAILABLE = "imagefs.available"
IMAGEFS_INODES_FREE = "imagefs.inodesFree"
PID_AVAILABLE = "pid.available"

MEMORY = "memory"
DISK = "ephemeral-storage"
INODES = "inodes"
PIDS = "pids"

MEMORY_PRESSURE = "MemoryPressure"
DISK_PRESSURE = "DiskPressure"
PID_PRESSURE = "PIDPressure"
CONDITIONS = (MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE)


@dataclass(frozen=True, slots=True)
class Signal:
    """The resource that a signal is about, and the node condition that it causes."""

    resource: str
    condition: str


SIGNALS: Mapping[str, Signal] = {
    MEMORY_AVAILABLE: Signal(MEMORY, MEMORY_PRESSURE),
    ALLOCATABLE_MEMORY_AVAILABLE: Signal(MEMORY, MEMORY_PRESSURE),
    NODEFS_AVAILABLE: Signal(DISK, DISK_PRESSURE),
    IMAGEFS_AVAILABLE: Signal(DISK, DISK_PRESSURE),
    NODEFS_INODES_FREE: Signal(INODES, DISK_PRESSURE),
    IMAGEFS_INODES_FREE: Signal(INODES, DISK_PRESSURE),
    PID_AVAILABLE: Signal(PIDS, PID_PRESSURE),
}

_FAMILIES = {MEMORY: Family.BINARY, DISK: Family.BINARY}


@dataclass(frozen=True, slots=True)
class Observation:
    """Available and total amount of a signal's resource: bytes or a count."""

    available: int
    capacity: int


Observations = Mapping[str, Observation]
"""Observations by signal; one that cannot be measured is left out."""


def amount_of(resource: str, number: int) -> Quantity:
    """Return a number of a resource as upstream prints it: bytes in binary units, counts not."""
    return Quantity(number * NANO, _FAMILIES.get(resource, Family.DECIMAL))
