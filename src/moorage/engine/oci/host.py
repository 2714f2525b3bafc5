"""Host facts that a container's `config.json` depends on, derived from the `Host` of the process.

Source: capabilities(7); Linux cgroup-v1 and cgroup-v2 documents.
"""

from __future__ import annotations

from dataclasses import dataclass

from moorage.linux.capabilities import NAMES
from moorage.linux.cgroups import Cgroups, Layout
from moorage.linux.host import Host, read_host
from moorage.linux.oom import LOWEST_OOM_SCORE


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The host. `oom_score_floor` is the lowest oom_score_adj this process may set.

    `machine` is uname's name of the processor. The capability names have their CAP_.
    """

    kernel: tuple[int, int]
    machine: str
    is_cgroup_v2: bool = False
    has_hugetlb: bool = False
    has_swap_accounting: bool = False
    has_app_armor: bool = False
    has_selinux: bool = False
    has_seccomp: bool = True
    oom_score_floor: int = LOWEST_OOM_SCORE
    known_capabilities: frozenset[str] = frozenset(NAMES)
    own_capabilities: frozenset[str] = frozenset(NAMES)


def look_at_host(host: Host | None = None) -> HostFacts:
    """Return the facts of a host, of this one if it is not given.

    Blocks. Raises OSError without /proc.
    """
    host = host or read_host()
    return HostFacts(
        kernel=host.kernel.version,
        machine=host.kernel.machine,
        is_cgroup_v2=host.cgroups.layout is Layout.V2,
        has_hugetlb=has_controller(host.cgroups, "hugetlb"),
        has_swap_accounting=host.has_swap_accounting,
        has_app_armor=host.has_app_armor,
        has_selinux=host.has_selinux,
        has_seccomp=host.has_seccomp,
        oom_score_floor=host.oom_score_floor,
        known_capabilities=host.known_capabilities,
        own_capabilities=host.capabilities,
    )


def has_controller(cgroups: Cgroups, name: str) -> bool:
    """Return whether a runtime finds the controller: on a hybrid it reads version 1 only."""
    return name in (cgroups.v2 if cgroups.layout is Layout.V2 else cgroups.v1)
