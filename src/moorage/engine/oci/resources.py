"""Resource limits: the CRI's as OCI's, for a new container or an update.

Source: CRI LinuxContainerResources; OCI runtime-spec, "Control groups".
"""

from __future__ import annotations

import re
from typing import Any

from moorage.engine.errors import InvalidError
from moorage.engine.oci.context import HostFacts
from moorage.linux.oom import LOWEST_OOM_SCORE
from moorage.wire.cri import pb

SANDBOX_SHARES = 2
SANDBOX_OOM_SCORE = -998
HIGHEST_OOM_SCORE = 1000

_CPU = (("shares", "cpu_shares"), ("quota", "cpu_quota"), ("period", "cpu_period"),
        ("cpus", "cpuset_cpus"), ("mems", "cpuset_mems"))  # fmt: skip
_PAGE_SIZE = re.compile(r"^[1-9][0-9]*[KMG]B$")


def resources_of(resources: pb.LinuxContainerResources, host: HostFacts) -> dict[str, Any]:
    """Return the OCI `linux.resources`; absent fields are left out, so unchanged.

    Swap is limited to the memory limit unless a swap limit is set. Huge page limits are left out on
    a host that does not count them. Raises InvalidError.
    """
    document: dict[str, Any] = {}
    cpu = {name: value for name, field in _CPU if (value := getattr(resources, field))}
    if cpu:
        document["cpu"] = cpu
    if memory := _memory(resources, host):
        document["memory"] = memory
    if resources.hugepage_limits and host.has_hugetlb:
        document["hugepageLimits"] = [_hugepage(limit) for limit in resources.hugepage_limits]
    if resources.unified:
        document["unified"] = _unified(resources.unified, host)
    return document


def oom_score(adjustment: int, host: HostFacts) -> int:
    """Return the oom_score_adj: the requested one, or the lowest this engine may set.

    Raises InvalidError beyond -1000 and 1000.
    """
    if not LOWEST_OOM_SCORE <= adjustment <= HIGHEST_OOM_SCORE:
        raise InvalidError(
            f"resources.oom_score_adj {adjustment} is out of range; "
            f"it must be {LOWEST_OOM_SCORE} to {HIGHEST_OOM_SCORE}"
        )
    return max(adjustment, host.oom_score_floor)


def _memory(resources: pb.LinuxContainerResources, host: HostFacts) -> dict[str, int]:
    limit, swap = resources.memory_limit_in_bytes, resources.memory_swap_limit_in_bytes
    memory = {"limit": limit} if limit else {}
    if host.has_swap_accounting and (swap or limit):
        memory["swap"] = swap or limit
        if 0 < memory["swap"] < limit:
            raise InvalidError(
                f"resources.memory_swap_limit_in_bytes {swap} is below the memory limit {limit}; "
                "it counts memory and swap together"
            )
    return memory


def _hugepage(limit: pb.HugepageLimit) -> dict[str, Any]:
    if not _PAGE_SIZE.match(limit.page_size):
        raise InvalidError(
            f"resources.hugepage_limits has page size {limit.page_size!r}; use 2MB, for example"
        )
    return {"pageSize": limit.page_size, "limit": limit.limit}


def _unified(unified: Any, host: HostFacts) -> dict[str, str]:
    if not host.is_cgroup_v2:
        raise InvalidError(
            "resources.unified needs cgroup version 2, which this host does not use for its "
            "controllers; leave it out"
        )
    for key in unified:
        if "/" in key or "." not in key.strip("."):
            raise InvalidError(
                f"resources.unified key {key!r} is not a cgroup file; use a name "
                "such as memory.high"
            )
    return dict(unified)
