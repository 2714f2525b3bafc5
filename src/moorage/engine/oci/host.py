"""Host facts for specs, read once at the engine's start.

Source: proc(5); capabilities(7); the kernel's cgroup-v1 and cgroup-v2 documents.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from moorage.linux.capabilities import NAMES, effective_capabilities
from moorage.linux.cgroups import Cgroups, Layout, current_cgroups
from moorage.linux.kernel import kernel_version
from moorage.linux.oom import LOWEST_OOM_SCORE, oom_score_floor, own_oom_score

_V1_SWAP = "memory.memsw.limit_in_bytes"
_V2_SWAP = "memory.swap.max"


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


def look_at_host() -> HostFacts:
    """Return the facts of this host and process. Blocks. Raises OSError without /proc."""
    status = Path("/proc/self/status").read_text()
    own = effective_capabilities(status)
    uname = os.uname()
    cgroups = current_cgroups()
    return HostFacts(
        kernel=kernel_version(uname.release),
        machine=uname.machine,
        is_cgroup_v2=cgroups.layout is Layout.V2,
        has_hugetlb=has_controller(cgroups, "hugetlb"),
        has_swap_accounting=_has_swap_accounting(cgroups),
        has_app_armor=_text("/sys/module/apparmor/parameters/enabled") == "Y",
        has_selinux=Path("/sys/fs/selinux/enforce").exists(),
        has_seccomp="\nSeccomp:" in status,
        oom_score_floor=oom_score_floor(own, own_oom_score()),
        known_capabilities=known_capabilities(_text("/proc/sys/kernel/cap_last_cap")),
        own_capabilities=own,
    )


def known_capabilities(last: str) -> frozenset[str]:
    """Return the capabilities of a kernel with that highest number; all known ones without it."""
    return frozenset(NAMES[: int(last) + 1] if last.isdecimal() else NAMES)


def has_controller(cgroups: Cgroups, name: str) -> bool:
    """Return whether a runtime finds the controller: on a hybrid it reads version 1 only."""
    return name in (cgroups.v2 if cgroups.layout is Layout.V2 else cgroups.v1)


def _has_swap_accounting(cgroups: Cgroups) -> bool:
    """Return whether swap is counted: on version 2 any cgroup but the root has the file."""
    if cgroups.layout is Layout.V2 and cgroups.unified is not None:
        return any(cgroups.unified.glob(f"*/{_V2_SWAP}"))
    memory = cgroups.v1.get("memory")
    return memory is not None and (memory / _V1_SWAP).exists()


def _text(path: str) -> str:
    """Return a file's text without the newline, "" without the file."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
