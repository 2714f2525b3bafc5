"""Cgroup values of a pod, and the files they are written to.

Pure. Requests and limits are those of the whole pod including the sandbox's overhead, for static
pods too. Source: kubelet `ResourceConfigForPod`, `getCPUWeight`; KEP-688.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moorage.api import quantity
from moorage.api.containers import ResourceRequirements
from moorage.api.pods import Pod
from moorage.api.qos import BEST_EFFORT, BURSTABLE, GUARANTEED
from moorage.api.quantity import Quantity
from moorage.api.resource_names import HUGEPAGES_PREFIX, is_hugepages
from moorage.node.config.container import (
    MAX_SHARES,
    MIN_SHARES,
    PERIOD_US,
    page_name,
    quota_us,
    shares,
)
from moorage.node.pod_facts.qos import pod_qos_class
from moorage.runtimeclass import pod_limits, pod_requests

UNLIMITED = -1

KUBEPODS = "kubepods"
QOS_DIRECTORIES = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupValues:
    """Settings of one cgroup; None keeps the kernel's default.

    A `quota_us` or `memory_bytes` of UNLIMITED removes the limit. `huge_pages` is bytes by page
    size in the kernel's spelling; page sizes that it lacks are limited to 0. None leaves the limits
    of all page sizes unchanged.
    """

    shares: int | None = None
    quota_us: int | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    huge_pages: Mapping[str, int] | None = None


def pod_directory(pod: Pod) -> str:
    """Return the pod's cgroup below the root: `kubepods/burstable/podUID`."""
    return "/".join(
        part
        for part in (KUBEPODS, QOS_DIRECTORIES[pod_qos_class(pod)], f"pod{pod.metadata.uid}")
        if part
    )


def pod_values(pod: Pod, *, pids_limit: int = UNLIMITED) -> CgroupValues:
    """Return the settings of a pod's cgroup; overhead counts except for BestEffort pods."""
    class_ = pod_qos_class(pod)
    pids = pids_limit if pids_limit > 0 else None
    requests = pod_requests(pod.spec)
    pages = _huge_pages(requests)
    if class_ == BEST_EFFORT:
        return CgroupValues(shares=MIN_SHARES, pids=pids, huge_pages=pages)
    limits = pod_limits(pod.spec)
    is_guaranteed = class_ == GUARANTEED
    return CgroupValues(
        shares=shares(_milli(requests.get("cpu"))),
        quota_us=quota_us(_milli(limits.get("cpu")))
        if is_guaranteed or _is_limited(pod, "cpu")
        else None,
        memory_bytes=_bytes(limits.get("memory"))
        if is_guaranteed or _is_limited(pod, "memory")
        else None,
        pids=pids,
        huge_pages=pages,
    )


def burstable_values(pods: Iterable[Pod]) -> CgroupValues:
    """Return the burstable parent's settings: CPU shares for the sum of the requests."""
    milli = sum(
        _milli(pod_requests(pod.spec).get("cpu")) for pod in pods if pod_qos_class(pod) == BURSTABLE
    )
    return CgroupValues(shares=shares(milli))


def _is_limited(pod: Pod, name: str) -> bool:
    """Return whether the whole pod is limited: by its own limit, or by one in every container."""
    if pod.spec.resources is not None and _has_limit(pod.spec.resources, name):
        return True
    every = (*pod.spec.containers, *pod.spec.init_containers)
    return all(_has_limit(container.resources, name) for container in every)


def _has_limit(resources: ResourceRequirements, name: str) -> bool:
    return bool(quantity.parse(resources.limits.get(name, "0")))


def _huge_pages(requests: Mapping[str, Quantity]) -> dict[str, int]:
    return {
        page_name(quantity.parse(name.removeprefix(HUGEPAGES_PREFIX)).value): amount.value
        for name, amount in requests.items()
        if is_hugepages(name)
    }


def _milli(amount: Quantity | None) -> int:
    return 0 if amount is None else amount.milli


def _bytes(amount: Quantity | None) -> int:
    return 0 if amount is None else amount.value


def weight(cpu_shares: int) -> int:
    """Convert cpu.shares, 2 to 262144, to cpu.weight, 1 to 10000, as the kubelet does."""
    if cpu_shares >= MAX_SHARES:
        return 10000
    return 1 + (cpu_shares - MIN_SHARES) * 9999 // (MAX_SHARES - MIN_SHARES)


File = tuple[str, str, str]
"""Controller, file and content."""


def v1_files(values: CgroupValues, page_sizes: Iterable[str] = ()) -> list[File]:
    """Return the files to write in the version 1 hierarchies, in order.

    `page_sizes` are in the kernel's spelling.
    """
    files: list[File] = []
    if values.shares is not None:
        files.append(("cpu", "cpu.shares", str(values.shares)))
    if values.quota_us is not None:
        quota = values.quota_us if values.quota_us > 0 else UNLIMITED
        files.append(("cpu", "cpu.cfs_period_us", str(PERIOD_US)))
        files.append(("cpu", "cpu.cfs_quota_us", str(quota)))
    if values.memory_bytes:
        files.append(("memory", "memory.limit_in_bytes", str(values.memory_bytes)))
    if values.pids is not None:
        files.append(("pids", "pids.max", _or_max(values.pids)))
    for page, limit in _page_limits(values, page_sizes).items():
        files.append(("hugetlb", f"hugetlb.{page}.limit_in_bytes", str(limit)))
    return files


def v2_files(values: CgroupValues, page_sizes: Iterable[str] = ()) -> list[File]:
    """Return the files to write in the unified hierarchy, in order.

    `page_sizes` are in the kernel's spelling.
    """
    files: list[File] = []
    if values.shares is not None:
        files.append(("cpu", "cpu.weight", str(weight(values.shares))))
    if values.quota_us is not None:
        quota = str(values.quota_us) if values.quota_us > 0 else "max"
        files.append(("cpu", "cpu.max", f"{quota} {PERIOD_US}"))
    if values.memory_bytes:
        files.append(("memory", "memory.max", _or_max(values.memory_bytes)))
    if values.pids is not None:
        files.append(("pids", "pids.max", _or_max(values.pids)))
    for page, limit in _page_limits(values, page_sizes).items():
        files.append(("hugetlb", f"hugetlb.{page}.max", str(limit)))
    return files


def _page_limits(values: CgroupValues, page_sizes: Iterable[str]) -> dict[str, int]:
    """Return the limit of every page size; 0 for those that the pod does not request."""
    if values.huge_pages is None:
        return {}
    return {**dict.fromkeys(page_sizes, 0), **values.huge_pages}


def _or_max(value: int) -> str:
    return "max" if value == UNLIMITED else str(value)


V1_LIMITS = (("cpu", "cpu.cfs_quota_us"), ("memory", "memory.limit_in_bytes"))
V2_LIMITS = (("cpu", "cpu.max"), ("memory", "memory.max"))
"""Controllers and files of the limits that a resize changes."""

# Without a limit version 1 shows the largest number of whole pages.
_NO_MEMORY_LIMIT = 1 << 62


def limits_in(files: Mapping[str, str]) -> CgroupValues:
    """Return the limits that these files of one cgroup have, by file name."""
    quota = files.get("cpu.max", files.get("cpu.cfs_quota_us"))
    memory = files.get("memory.max", files.get("memory.limit_in_bytes"))
    return CgroupValues(
        quota_us=None if quota is None else _limit(quota.split()[0]),
        memory_bytes=None if memory is None else _limit(memory.strip()),
    )


def _limit(text: str) -> int:
    if text == "max":
        return UNLIMITED
    limit = int(text)
    return UNLIMITED if limit < 0 or limit >= _NO_MEMORY_LIMIT else limit
