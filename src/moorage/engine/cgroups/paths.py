"""Where a container's cgroup is, and how a runtime is told.

Pure. With the cgroupfs driver the directory is named outright; with systemd a runtime is given a
slice, a prefix and an id, and systemd makes of it a directory for each part of the slice's name.
Source: OCI runtime spec "Cgroups Path"; systemd.slice(5); KEP-2033 for slices of pods.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from moorage.engine.errors import InvalidError
from moorage.handlers.definition import CgroupDriver

SCOPE_PREFIX = "cri-moorage"
# Where a container goes whose sandbox names no parent, as from crictl without a kubelet.
DEFAULT_PARENT = "/moorage"
DEFAULT_SLICE = "system.slice"
_SLICE = ".slice"
_SLICE_NAME = re.compile(r"[A-Za-z0-9:_.\\]+(?:-[A-Za-z0-9:_.\\]+)*\.slice")


@dataclass(frozen=True, slots=True)
class CgroupPath:
    """A container's cgroup.

    `path` and `parent` are where it and the pod's are in each hierarchy, absolute without the mount
    point; `oci` is what `linux.cgroupsPath` says. `is_parent_shared` when no parent was named, so
    that what is above it is not the pod's.
    """

    path: str
    parent: str
    oci: str
    is_parent_shared: bool = False


def container_cgroup(driver: CgroupDriver, parent: str, container_id: str) -> CgroupPath:
    """The cgroup of a container (or a sandbox's task) under the sandbox's `cgroup_parent`.

    Raises InvalidError when the driver can make nothing under such a parent.
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
    """Where a sandbox's `cgroup_parent` is in each hierarchy.

    Raises InvalidError when it is no place below the root.
    """
    if driver is CgroupDriver.SYSTEMD:
        return slice_path(PurePosixPath(parent or DEFAULT_SLICE).name)
    names = PurePosixPath("/", parent or DEFAULT_PARENT).parts
    if ".." in names or len(names) < 2 or "\0" in parent:
        raise InvalidError(
            f"cgroup parent {parent!r} is no cgroup below the root: give a path such as /pods/a"
        )
    return str(PurePosixPath(*names))


def slice_path(name: str) -> str:
    """The directory of a slice: `a-b.slice` is `/a.slice/a-b.slice`. Raises InvalidError."""
    if not _SLICE_NAME.fullmatch(name):
        raise InvalidError(
            f"cgroup parent {name!r} is no systemd slice: give a name such as pods-a.slice, or "
            "set the cgroupfs driver on the handler and the kubelet"
        )
    parts = name.removesuffix(_SLICE).split("-")
    slices = ("-".join(parts[:count]) + _SLICE for count in range(1, len(parts) + 1))
    return "/" + "/".join(slices)
