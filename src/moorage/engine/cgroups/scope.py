"""Scope cgroups of systemd: crun's cgroup in a container's scope, and the figures that it adds.

systemd owns a scope's files: a `daemon-reload` resets limits that others wrote there. crun leaves
them alone and writes into a cgroup in the scope, which is delegated. The scope's usage includes
that cgroup's; its limits, and the counts of a CPU quota, do not. Pure, except `container_subgroup`.
Source: crun(1) `run.oci.systemd.subgroup`; kernel cgroup-v2 document.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from moorage.linux.cgroups import Cgroups

_SUBGROUP = "container"

NOT_RECURSIVE: Mapping[str, Callable[[int, int], int]] = {
    # A limit holds for what is below it, so the lowest is in force.
    "memory_limit": min,
    "swap_limit": min,
    "pids_limit": min,
    "reservation": max,
    "periods": int.__add__,
    "throttled_periods": int.__add__,
    "throttled_ns": int.__add__,
}
"""Figures that a cgroup has without those below it, and how two cgroups' become one."""


def container_subgroup(cgroups: Cgroups, path: str) -> str | None:
    """Return the path of crun's cgroup in a scope, None if there is none. Takes a system call."""
    if not path.endswith(".scope") or cgroups.unified is None:
        return None
    subgroup = f"{path}/{_SUBGROUP}"
    return subgroup if os.path.isdir(f"{cgroups.unified}{subgroup}") else None


def joined(name: str, outer: int | None, inner: int | None) -> int | None:
    """Return a figure of a scope and of the cgroup in it as that of the container."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return NOT_RECURSIVE[name](outer, inner)
