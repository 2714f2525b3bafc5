"""Task cgroup: read from the bundle's spec, and removed when no runtime removes it.

A runtime that is killed before it has recorded a container has already created its cgroup, and
leaves it behind. Source: OCI runtime-spec `linux.cgroupsPath`.
"""

from __future__ import annotations

import json

from moorage.handlers.adapters.adapter import AdapterError, Task
from moorage.linux.cgroup_removal import CgroupBusyError, remove_released_cgroup
from moorage.linux.cgroups import Cgroups

REMOVE_DEADLINE_S = 20.0


def cgroup_of(task: Task) -> str:
    """Return the task's cgroup path in each hierarchy; empty without one.

    Also empty for a systemd scope, which systemd removes.
    """
    try:
        spec = json.loads((task.bundle / "config.json").read_bytes())
    except FileNotFoundError:
        return ""
    path = str(spec.get("linux", {}).get("cgroupsPath") or "")
    return path if path.startswith("/") else ""


async def remove_task_cgroup(cgroups: Cgroups, path: str) -> None:
    """Remove a cgroup once its processes have ended. Raises AdapterError if they do not."""
    if not path:
        return
    try:
        await remove_released_cgroup(cgroups, path, REMOVE_DEADLINE_S)
    except CgroupBusyError as error:
        raise AdapterError(f"cgroup {path} cannot be removed: {error.strerror}") from None
