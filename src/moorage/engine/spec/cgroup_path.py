"""Where a task's cgroup is, in the form each cgroup driver takes.

Source: OCI runtime-spec, "Cgroups Path"; runc's systemd form `slice:prefix:name`.
"""

from __future__ import annotations

import posixpath

from moorage.engine.errors import InvalidError

PREFIX = "cri-moorage"
_DEFAULT_PARENT = "/moorage"
_DEFAULT_SLICE = "system.slice"


def cgroup_path(parent: str, task_id: str, *, is_systemd: bool) -> str:
    """The OCI `linux.cgroupsPath` of a task below its pod's parent. Raises InvalidError."""
    if not is_systemd:
        return posixpath.join(_absolute(parent) if parent else _DEFAULT_PARENT, task_id)
    slice_name = posixpath.basename(parent.rstrip("/")) if parent else _DEFAULT_SLICE
    if not slice_name.endswith(".slice"):
        raise InvalidError(
            f"linux.cgroup_parent {parent!r} is no systemd slice; "
            "give the caller and this handler the same cgroup driver"
        )
    return f"{slice_name}:{PREFIX}:{task_id}"


def _absolute(parent: str) -> str:
    if ".." in parent.split("/"):
        raise InvalidError(f"linux.cgroup_parent {parent!r} has '..'; give its plain path")
    return "/" + parent.strip("/")
