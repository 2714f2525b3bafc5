"""Host facts that decide about a runtime's availability."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from moorage.linux.cgroups import current_cgroups
from moorage.linux.kernel import can_open_kvm, kernel_version


@dataclass(frozen=True, slots=True)
class Machine:
    """Host facts that runtimes depend on. `kernel` is (major, minor).

    `is_hugetlb_apart`: a hybrid cgroup layout whose hugetlb controller is on version 2.
    """

    kernel: tuple[int, int]
    has_kvm: bool
    is_hugetlb_apart: bool = False


def this_machine() -> Machine:
    """Return the facts of this host at present: a device or a cgroup mount may appear later."""
    return Machine(
        kernel=kernel_version(platform.release()),
        has_kvm=can_open_kvm(),
        is_hugetlb_apart=current_cgroups().is_hugetlb_apart,
    )
