"""Cgroup paths of containers and pods, and their form in the OCI spec.

Pure. The cgroupfs driver names the directory; with systemd a runtime gets a slice, a prefix and an
id, and systemd creates a directory for each part of the slice's name. Source: OCI runtime spec
"Cgroups Path"; systemd.slice(5); KEP-2033 for slices of pods.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from moorage.engine.errors import InvalidError
from moorage.engine.handlers.definition import CgroupDriver

SCOPE_PREFIX = "cri-moorage"
# For containers of sandboxes without a `cgroup_parent`, as from crictl without a kubelet.
DEFAULT_PARENT = "/moorage"
DEFAULT_SLICE = "system.slice"
_SLICE = ".slice"
_SLICE_NAME = re.compile(r"[A-Za-z0-9:_.\\]+(?:-[A-Za-z0-9:_.\\]+)*\.slice")


@dataclass(frozen=True, slots=True)
class CgroupPath:
    """A container's cgroup.

    `path` and `parent` are the container's and the pod's in each hierarchy, absolute without the
    mount point; `oci` is `linux.cgroupsPath`. `is_parent_shared` is set when no parent was named,
    so that the parent is not the pod's own.
    """

    path: str
    parent: str
    oci: str
    is_parent_shared: bool = False


def container_cgroup(driver: CgroupDriver, parent: str, container_id: str) -> CgroupPath:
    """Return the cgroup of a container or infra task under the sandbox's `cgroup_parent`.

    Raises InvalidError for a parent that the driver cannot use.
    """
    above = parent_cgroup(driver, parent)
    if driver is CgroupDriver.CGROUPFS:
        path = f"{above.rstrip('/')}/{container_id}"
        return CgroupPath(path, above, path, is_parent_shared=not parent)
    return CgroupPath(
        f"{above}/{SCOPE_PREFIX}-{container_id}.scope",
        above,
        f"{PurePosixPath(above).name}:{SCOPE_PREFIX}:{container_id}",
        is_parent_shared=not parent,
    )


def parent_cgroup(driver: CgroupDriver, parent: str) -> str:
    """Return a sandbox's `cgroup_parent` as a path in each hierarchy.

    Raises InvalidError when it is not below the root.
    """
    if driver is CgroupDriver.SYSTEMD:
        return slice_path(PurePosixPath(parent or DEFAULT_SLICE).name)
    # A path that begins with exactly two slashes would keep them.
    names = PurePosixPath("/", (parent or DEFAULT_PARENT).lstrip("/")).parts
    if ".." in names or len(names) < 2 or "\0" in parent:
        raise InvalidError(
            f"cgroup parent {parent!r} is not a cgroup path below the root; use a path such as "
            "/pods/a"
        )
    return str(PurePosixPath(*names))


def slice_path(name: str) -> str:
    """Return a slice's directory: `a-b.slice` is `/a.slice/a-b.slice`. Raises InvalidError."""
    if not _SLICE_NAME.fullmatch(name):
        raise InvalidError(
            f"cgroup parent {name!r} is not a systemd slice; use a name such as pods-a.slice, or "
            "set the cgroupfs driver on the handler and the kubelet"
        )
    parts = name.removesuffix(_SLICE).split("-")
    slices = ("-".join(parts[:count]) + _SLICE for count in range(1, len(parts) + 1))
    return "/" + "/".join(slices)
