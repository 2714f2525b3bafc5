"""Shares of containers in a cgroup that holds a pod's containers together.

Where a pod has a kernel of its own (gVisor, virtual machines), its containers' processes are not on
the host: only the whole pod's usage can be read. It is divided evenly, so the containers' sum is
the pod's, which is what autoscalers and `kubectl top` add up.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import fields

from moorage.engine.cgroups.usage import Usage

_MOST_KEPT = 4096
_LIMITS = ("memory_limit", "swap_limit")


class CpuShares:
    """CPU time of each container, whose counters never fall when others come and go.

    What the group used between two readings is divided by the containers running at the second. The
    least recently read containers are evicted. Thread-safe.
    """

    def __init__(self, most_kept: int = _MOST_KEPT) -> None:
        self._most_kept = most_kept
        self._kept: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._lock = threading.Lock()

    def share(self, id_: str, used_ns: int, containers: int) -> int:
        """Return a container's CPU time when that of the group is `used_ns`; in nanoseconds."""
        with self._lock:
            last_ns, own_ns = self._kept.pop(id_, (0, 0))
            if used_ns < last_ns:
                # A counter that restarts belongs to another cgroup of the same name.
                last_ns, own_ns = 0, 0
            own_ns += (used_ns - last_ns) // containers
            self._kept[id_] = (used_ns, own_ns)
            while len(self._kept) > self._most_kept:
                self._kept.popitem(last=False)
        return own_ns


def share_of(usage: Usage, containers: int, cpu_ns: int | None) -> Usage:
    """Return a container's part of a group's usage, with its own CPU time; it has no limits."""
    values: dict[str, int | None] = {}
    for field in fields(Usage):
        value = getattr(usage, field.name)
        is_known = value is not None and field.name not in _LIMITS
        values[field.name] = value // containers if is_known else None
    return Usage(**{**values, "cpu_ns": cpu_ns})
