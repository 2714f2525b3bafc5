"""Host facts that decide about a runtime's availability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from moorage.linux.host import Host, read_host


@dataclass(frozen=True, slots=True)
class Machine:
    """Host facts that runtimes depend on. `kernel` is (major, minor).

    `is_hugetlb_apart`: a hybrid cgroup layout whose hugetlb controller is on version 2.
    """

    kernel: tuple[int, int]
    has_kvm: bool
    is_hugetlb_apart: bool = False

    @classmethod
    def of(cls, host: Host) -> Self:
        """Return the properties of a host that runtimes depend on."""
        return cls(host.kernel.version, host.has_kvm, host.cgroups.is_hugetlb_apart)


def this_machine() -> Machine:
    """Return the facts of this host at present: a device or a cgroup mount may appear later."""
    return Machine.of(read_host())
