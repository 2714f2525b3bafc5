"""The cgroup a task is told of: found in its bundle, removed when no runtime does it.

A runtime that is killed before it has noted down a container has made the cgroup already, and
forgets it. Source: OCI runtime-spec `linux.cgroupsPath`.
"""

from __future__ import annotations

import asyncio
import json

from moorage.handlers.adapters.adapter import AdapterError, Task
from moorage.linux.cgroup_life import CgroupError, has_cgroup, remove_cgroup
from moorage.linux.cgroups import Cgroups

REMOVE_DEADLINE_S = 20.0
_REMOVE_PAUSE_S = 0.01


def cgroup_of(task: Task) -> str:
    """Where it is in each hierarchy; empty without one. systemd's scopes are systemd's to remove,
    and not told.
    """
    try:
        spec = json.loads((task.bundle / "config.json").read_bytes())
    except FileNotFoundError:
        return ""
    path = str(spec.get("linux", {}).get("cgroupsPath") or "")
    return path if path.startswith("/") else ""


async def remove_task_cgroup(cgroups: Cgroups, path: str) -> None:
    """Remove a cgroup whose processes have ended. Raises AdapterError when they have not."""
    if not path:
        return
    try:
        async with asyncio.timeout(REMOVE_DEADLINE_S):
            while has_cgroup(cgroups, path):
                try:
                    await asyncio.to_thread(remove_cgroup, cgroups, path)
                except CgroupError:
                    # The kernel lets go of it a moment after its last process, and tells nobody.
                    await asyncio.sleep(_REMOVE_PAUSE_S)
    except TimeoutError:
        raise AdapterError(f"something is left in the cgroup {path}") from None
