"""Order of eviction: which pod goes first when a resource is starved.

Pods that use more than they request, then those of low priority, then by how much more they use;
for process IDs by priority and count. A pod without statistics goes before the others. Source:
kubelet `eviction/helpers.go` `rankMemoryPressure`, `rankDiskPressureFunc`, `rankPIDPressure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from moorage.api.pods import Pod
from moorage.linux.trees import DiskUse
from moorage.node.pressure.thresholds import (
    DISK,
    MEMORY,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    PIDS,
    SIGNALS,
)
from moorage.runtimeclass import pod_requests

_NOTHING = DiskUse(0, 0)
_NODEFS = (NODEFS_AVAILABLE, NODEFS_INODES_FREE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerUse:
    """What one container uses; None where it is not known. `disk` is its layer and its logs."""

    memory_bytes: int | None = None
    disk: DiskUse | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUse:
    """What one pod uses, its runtime's processes included; None where it is not known.

    `layers` is on the images' file system, `local` (logs, emptyDirs, single files) on the node's.
    """

    memory_bytes: int | None = None
    processes: int | None = None
    layers: DiskUse | None = None
    local: DiskUse | None = None
    containers: Mapping[str, ContainerUse] = field(default_factory=dict)


Uses = Mapping[str, PodUse]
"""Use by pod UID."""


def ranked(pods: Iterable[Pod], uses: Uses, signal: str, *, has_image_disk: bool) -> list[Pod]:
    """Return the pods in the order in which they are evicted for a signal.

    `has_image_disk` means that images and writable layers are on a file system of their own.
    """
    resource = SIGNALS[signal].resource
    nothing = PodUse()

    def key(pod: Pod) -> tuple[int, ...]:
        use = uses.get(pod.metadata.uid, nothing)
        amount = _amount(use, signal, has_image_disk=has_image_disk)
        priority = pod.spec.priority or 0
        if amount is None:
            return (priority, 0, 0) if resource == PIDS else (0, 0, priority, 0)
        if resource == PIDS:
            return (priority, 1, -amount)
        request = _request(pod, resource)
        return (1, int(amount <= request), priority, request - amount)

    return sorted(pods, key=key)


def _amount(use: PodUse, signal: str, *, has_image_disk: bool) -> int | None:
    """Return how much of a signal's resource a pod uses; None if it is not known."""
    resource = SIGNALS[signal].resource
    if resource in _READ:
        return _READ[resource](use)
    disk = _disk_on(use, signal, has_image_disk=has_image_disk)
    if disk is None:
        return None
    return disk.size_bytes if resource == DISK else disk.inodes


_READ: Mapping[str, Callable[[PodUse], int | None]] = {
    MEMORY: lambda use: use.memory_bytes,
    PIDS: lambda use: use.processes,
}


def _disk_on(use: PodUse, signal: str, *, has_image_disk: bool) -> DiskUse | None:
    """Return the pod's usage of the file system that a signal is about."""
    if use.layers is None and use.local is None:
        return None
    layers, local = use.layers or _NOTHING, use.local or _NOTHING
    if not has_image_disk:
        return DiskUse(layers.size_bytes + local.size_bytes, layers.inodes + local.inodes)
    return local if signal in _NODEFS else layers


def _request(pod: Pod, resource: str) -> int:
    amount = pod_requests(pod.spec).get(resource)
    return amount.value if amount is not None else 0
