"""What runtimes need of the host."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from moorage.linux.cgroups import cgroups_of, unified_mount
from moorage.linux.mounts import current_mounts

_KVM = Path("/dev/kvm")


@dataclass(frozen=True, slots=True)
class Machine:
    """What runtimes need of the host. `kernel` is (major, minor).

    `is_hugetlb_apart`: a hybrid cgroup layout whose hugetlb controller is on version 2.
    """

    kernel: tuple[int, int]
    has_kvm: bool
    is_hugetlb_apart: bool = False


def this_machine() -> Machine:
    """What this machine offers now: a device or a cgroup mount may come later."""
    mounts = current_mounts()
    unified = unified_mount(mounts)
    controllers = (unified / "cgroup.controllers").read_text() if unified else ""
    release = re.match(r"(\d+)\.(\d+)", platform.release())
    return Machine(
        kernel=(int(release[1]), int(release[2])) if release else (0, 0),
        has_kvm=_can_open(_KVM),
        is_hugetlb_apart=cgroups_of(mounts, controllers).is_hugetlb_apart,
    )


def _can_open(device: Path) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True
