"""Cgroup layout of the host: which versions are mounted, and where each controller is.

Pure, from the mounts, except `current_cgroups`. A hybrid has controllers on version 1 and a version
2 hierarchy beside them; a controller is in one of the two. Source: cgroups(7), systemd's "legacy",
"hybrid" and "unified" layouts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath

from moorage.linux.mounts import Mount, current_mounts

CONTROLLERS = (
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "pids",
    "blkio",
    "devices",
    "freezer",
    "hugetlb",
    "net_cls",
    "net_prio",
    "perf_event",
)
NEEDED_ON_V1 = ("cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer")
NEEDED_ON_V2 = ("cpu", "memory", "pids")
"""Without cpuset: nothing of ours binds pods to processors, and runtimes run without it there,
as the kubelet does. On version 1 a kubelet demands it."""
V1_ROOT = Path("/sys/fs/cgroup")


class Layout(StrEnum):
    ABSENT = "absent"
    V1 = "v1"
    HYBRID = "hybrid"
    V2 = "v2"


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The host's cgroups.

    `v1` maps each controller on version 1 to its mount point; `unified` is version 2's mount point
    and `v2` its controllers. `hierarchies` are all mount points, those of named hierarchies too.
    """

    layout: Layout
    v1: Mapping[str, Path] = field(default_factory=dict)
    unified: Path | None = None
    v2: tuple[str, ...] = ()
    hierarchies: tuple[Path, ...] = ()

    @property
    def is_hugetlb_apart(self) -> bool:
        """Whether hugetlb is on version 2 of a hybrid, where version 1 runtimes do not find it."""
        return self.layout is Layout.HYBRID and "hugetlb" in self.v2

    @property
    def missing(self) -> tuple[str, ...]:
        """Controllers without which pods cannot be limited."""
        if self.layout is Layout.V2:
            return tuple(name for name in NEEDED_ON_V2 if name not in self.v2)
        return tuple(name for name in NEEDED_ON_V1 if name not in self.v1)

    def mount_of(self, controller: str) -> Path | None:
        """Return the mount point of a controller's hierarchy, None without the controller."""
        if controller in self.v1:
            return self.v1[controller]
        return self.unified if controller in self.v2 else None

    def directories(self, path: str) -> tuple[Path, ...]:
        """Return a cgroup's directory in every hierarchy, existing or not.

        `path` is as OCI's `cgroupsPath`: absolute, without the mount point. Raises ValueError when
        it is not, or names the root.
        """
        return tuple(directory_in(mount, path) for mount in self.hierarchies)


def directory_in(mount: Path, path: str) -> Path:
    """Return a cgroup's directory in one hierarchy. Raises ValueError as `directories` does."""
    names = PurePosixPath(path).parts
    if len(names) < 2 or names[0] != "/" or ".." in names:
        raise ValueError(f"cgroup path {path!r} is not an absolute path below the root")
    return mount.joinpath(*names[1:])


def current_cgroups() -> Cgroups:
    """Return the host's cgroups. Blocks."""
    mounts = current_mounts()
    unified = unified_mount(mounts)
    controllers = (unified / "cgroup.controllers").read_text() if unified else ""
    return cgroups_of(mounts, controllers)


def cgroups_of(mounts: Iterable[Mount], unified_controllers: str) -> Cgroups:
    """Return the cgroups in a list of mounts, with the text of version 2's `cgroup.controllers`."""
    v1: dict[str, Path] = {}
    unified: Path | None = None
    hierarchies: list[Path] = []
    for mount in mounts:
        if mount.kind == "cgroup2":
            unified = unified or mount.point
            hierarchies.append(mount.point)
        elif mount.kind == "cgroup":
            hierarchies.append(mount.point)
            for name in CONTROLLERS:
                if name in mount.options:
                    v1.setdefault(name, mount.point)
    v2 = tuple(unified_controllers.split()) if unified else ()
    return Cgroups(
        _layout(has_v1=bool(v1), has_v2=unified is not None),
        v1,
        unified,
        v2,
        tuple(dict.fromkeys(hierarchies)),
    )


def unified_mount(mounts: Iterable[Mount]) -> Path | None:
    """Return version 2's mount point, None without it."""
    return next((mount.point for mount in mounts if mount.kind == "cgroup2"), None)


def _layout(*, has_v1: bool, has_v2: bool) -> Layout:
    if has_v1:
        return Layout.HYBRID if has_v2 else Layout.V1
    return Layout.V2 if has_v2 else Layout.ABSENT


# Guest cgroups: where a shim has its virtual machine run, beside the cgroups of its containers.
#
#     /kata_overhead/SANDBOX     in the root of every hierarchy: outside the pod's cgroup
#     POD/kata_SANDBOX           inside the pod's cgroup
#
# Kata has the first with `sandbox_cgroup_only=false`, its default, and the second with `true`. What
# runs outside is charged to no pod, and no limit of a pod binds it. Source: Kata, "Host cgroup
# management".

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
