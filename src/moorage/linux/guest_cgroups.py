"""Guest cgroups: where a shim has its virtual machine run, beside the cgroups of its containers.

    /kata_overhead/SANDBOX     in the root of every hierarchy: outside the pod's cgroup
    POD/kata_SANDBOX           inside the pod's cgroup

Kata has the first with `sandbox_cgroup_only=false`, its default, and the second with `true`. What
runs outside is charged to no pod, and no limit of a pod binds it. Source: Kata, "Host cgroup
management".
"""

from __future__ import annotations

import os

from moorage.linux.cgroups import Cgroups, directory_in

OUTSIDE = "/kata_overhead"
"""The parent of guests' cgroups that are outside their pods'."""
GUEST_REMEDY = "sandbox_cgroup_only = true"
"""The setting of Kata that has guests inside their pods' cgroups."""
KATA_CONFIGURATION = "Kata's configuration.toml"
_INSIDE_PREFIX = "kata_"


def outside_cgroup(sandbox_id: str) -> str:
    """Return the path of a sandbox's guest outside the pod's cgroup, existing or not."""
    return f"{OUTSIDE}/{sandbox_id}"


def guest_cgroups(parent: str, sandbox_id: str) -> tuple[str, str]:
    """Return the paths that a sandbox's guest may have; `parent` is the pod's cgroup."""
    return outside_cgroup(sandbox_id), f"{parent}/{_INSIDE_PREFIX}{sandbox_id}"


def guests_outside(cgroups: Cgroups) -> frozenset[str]:
    """Return the IDs of all sandboxes whose guests run outside their pods' cgroups. Blocks."""
    mount = cgroups.mount_of("memory") or cgroups.unified
    if mount is None:
        return frozenset()
    try:
        with os.scandir(directory_in(mount, OUTSIDE)) as entries:
            return frozenset(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return frozenset()
