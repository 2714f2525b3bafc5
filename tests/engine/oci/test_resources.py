from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moorage.engine.errors import InvalidError
from moorage.engine.oci import HostFacts, oom_score, resources_of
from moorage.wire.cri import pb
from tests.engine.oci.requests import HOST, V2_HOST

NO_SWAP = replace(HOST, has_swap_accounting=False)
NO_HUGETLB = replace(HOST, has_hugetlb=False)
MIB = 1 << 20
PAGES = [pb.HugepageLimit(page_size="2MB", limit=4 * MIB)]


@pytest.mark.parametrize(
    ("asked", "host", "expected"),
    [
        ({}, HOST, {}),
        ({"cpu_shares": 102, "cpu_quota": 5000, "cpu_period": 100000}, HOST,
         {"cpu": {"shares": 102, "quota": 5000, "period": 100000}}),
        ({"cpu_quota": -1}, HOST, {"cpu": {"quota": -1}}),
        ({"cpuset_cpus": "0-1", "cpuset_mems": "0"}, HOST, {"cpu": {"cpus": "0-1", "mems": "0"}}),
        ({"memory_limit_in_bytes": MIB}, HOST, {"memory": {"limit": MIB, "swap": MIB}}),
        ({"memory_limit_in_bytes": MIB, "memory_swap_limit_in_bytes": 2 * MIB}, HOST,
         {"memory": {"limit": MIB, "swap": 2 * MIB}}),
        ({"memory_limit_in_bytes": MIB, "memory_swap_limit_in_bytes": MIB}, HOST,
         {"memory": {"limit": MIB, "swap": MIB}}),
        ({"memory_swap_limit_in_bytes": MIB}, HOST, {"memory": {"swap": MIB}}),
        ({"memory_swap_limit_in_bytes": MIB}, NO_SWAP, {}),
        ({"memory_limit_in_bytes": MIB, "memory_swap_limit_in_bytes": -1}, HOST,
         {"memory": {"limit": MIB, "swap": -1}}),
        ({"memory_limit_in_bytes": MIB}, NO_SWAP, {"memory": {"limit": MIB}}),
        ({"memory_limit_in_bytes": -1}, HOST, {"memory": {"limit": -1, "swap": -1}}),
        ({"hugepage_limits": PAGES}, HOST,
         {"hugepageLimits": [{"pageSize": "2MB", "limit": 4 * MIB}]}),
        ({"hugepage_limits": PAGES}, NO_HUGETLB, {}),
        ({"unified": {"memory.high": "1000"}}, V2_HOST, {"unified": {"memory.high": "1000"}}),
        ({"oom_score_adj": 5}, HOST, {}),
    ],
)  # fmt: skip
def test_limits(asked: dict[str, Any], host: HostFacts, expected: dict[str, Any]) -> None:
    assert resources_of(pb.LinuxContainerResources(**asked), host) == expected


@pytest.mark.parametrize(
    ("asked", "host", "text"),
    [
        ({"unified": {"memory.high": "1"}}, HOST, "unified needs cgroup version 2"),
        ({"unified": {"../memory.high": "1"}}, V2_HOST, "is not a cgroup file"),
        ({"unified": {"memory": "1"}}, V2_HOST, "is not a cgroup file"),
        ({"unified": {"memory.": "1"}}, V2_HOST, "is not a cgroup file"),
        ({"unified": {".memory": "1"}}, V2_HOST, "is not a cgroup file"),
        ({"unified": {"a/memory.high": "1"}}, V2_HOST, "is not a cgroup file"),
        ({"hugepage_limits": [pb.HugepageLimit(page_size="0MB")]}, HOST, "page size '0MB'"),
        ({"hugepage_limits": [pb.HugepageLimit(page_size="x2MB")]}, HOST, "page size 'x2MB'"),
        ({"hugepage_limits": [pb.HugepageLimit(page_size="2M")]}, HOST, "page size '2M'"),
        ({"memory_limit_in_bytes": 2 * MIB, "memory_swap_limit_in_bytes": MIB}, HOST,
         "below the memory limit"),
    ],
)  # fmt: skip
def test_invalid_limits_are_rejected(asked: dict[str, Any], host: HostFacts, text: str) -> None:
    with pytest.raises(InvalidError, match=text):
        resources_of(pb.LinuxContainerResources(**asked), host)


@pytest.mark.parametrize(
    ("asked", "floor", "expected"),
    [
        (-998, -1000, -998),
        (-998, 0, 0),
        (500, 0, 500),
        (0, 100, 100),
        (-1000, -1000, -1000),
        (1000, 0, 1000),
    ],
)
def test_no_score_is_below_what_the_engine_may_give(asked: int, floor: int, expected: int) -> None:
    assert oom_score(asked, replace(HOST, oom_score_floor=floor)) == expected


@pytest.mark.parametrize("asked", [-1001, 1001])
def test_scores_out_of_range_are_refused(asked: int) -> None:
    with pytest.raises(InvalidError, match="out of range"):
        oom_score(asked, HOST)
