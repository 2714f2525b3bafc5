"""Task cgroup: read from the bundle's spec, and removed when no runtime removes it.

A runtime that is killed before it has recorded a container has already created its cgroup, and
leaves it behind. Source: OCI runtime-spec `linux.cgroupsPath`.
"""

from __future__ import annotations

import json

from moorage.engine.handlers.adapters.adapter import AdapterError, Task
from moorage.linux.cgroup_control import CgroupError
from moorage.linux.cgroup_removal import CgroupCalls, kill_and_remove_cgroup
from moorage.linux.cgroups import Cgroups

REMOVE_DEADLINE_S = 20.0
_CALLS = CgroupCalls()


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


async def remove_task_cgroup(
    cgroups: Cgroups,
    path: str,
    deadline_s: float = REMOVE_DEADLINE_S,
    calls: CgroupCalls = _CALLS,
) -> None:
    """Kill remaining processes of a cgroup, and remove it. Raises AdapterError if it stays.

    Of a creation that was cut off, a process may be left, which a runtime that was killed in a
    change of version 1 devices has left frozen.
    """
    if not path:
        return
    try:
        await kill_and_remove_cgroup(cgroups, path, deadline_s, calls)
    except CgroupError as error:
        raise AdapterError(f"cgroup {path} cannot be removed: {error.strerror}") from None
