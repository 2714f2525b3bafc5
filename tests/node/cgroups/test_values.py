from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.node.cgroups.values import (
    UNLIMITED,
    CgroupValues,
    burstable_values,
    pod_directory,
    pod_values,
    v1_files,
    v2_files,
    weight,
)
from tests.node.objects import UID, Wire, a_pod, wire_container

OVERHEAD = {"cpu": "200m", "memory": "140Mi"}


def asking(requests: Wire | None = None, limits: Wire | None = None, name: str = "app") -> Wire:
    return wire_container(name, resources={"requests": requests or {}, "limits": limits or {}})


SMALL = {"cpu": "100m", "memory": "100Mi"}


@pytest.mark.parametrize(
    ("containers", "spec", "wanted"),
    [
        ([asking(SMALL, SMALL)], {}, (307, 30_000, 251658240)),
        ([asking()], {}, (2, None, None)),
        ([asking({"cpu": "100m", "memory": "50Mi"})], {}, (307, None, None)),
        (
            [asking({"cpu": "100m", "memory": "50Mi"}, {"cpu": "300m", "memory": "60Mi"})],
            {},
            (307, 50_000, 209715200),
        ),
        ([asking({"cpu": "100m"}, {"cpu": "300m"})], {}, (307, 50_000, None)),
        (
            [asking()],
            {
                "resources": {
                    "requests": {"cpu": "1", "memory": "100Mi"},
                    "limits": {"cpu": "1", "memory": "100Mi"},
                }
            },
            (1228, 120_000, 251658240),
        ),
        (
            [asking({"cpu": "100m"}, {"cpu": "300m"}), asking(name="free")],
            {},
            (307, None, None),
        ),
        (
            [asking({"cpu": "100m"}, {"cpu": "300m"})],
            {"initContainers": [asking(name="init")]},
            (307, None, None),
        ),
    ],
    ids=[
        "guaranteed",
        "best effort: overhead ignored",
        "requests alone",
        "requests and limits",
        "cpu limit alone",
        "pod level",
        "one without a limit",
        "an init container without a limit",
    ],
)
def test_a_pods_cgroup_with_overhead(containers: Any, spec: Any, wanted: Any) -> None:
    values = pod_values(a_pod(*containers, overhead=OVERHEAD, **spec))
    assert (values.shares, values.quota_us, values.memory_bytes) == wanted


@pytest.mark.parametrize(
    ("containers", "directory"),
    [
        ([asking(SMALL, SMALL)], f"kubepods/pod{UID}"),
        ([asking(SMALL)], f"kubepods/burstable/pod{UID}"),
        ([asking()], f"kubepods/besteffort/pod{UID}"),
    ],
)
def test_a_pods_place(containers: Any, directory: str) -> None:
    assert pod_directory(a_pod(*containers)) == directory


def test_process_ids_and_huge_pages() -> None:
    pages = {"cpu": "1", "hugepages-2Mi": "4Mi"}
    pod = a_pod(asking(pages, pages), overhead={"hugepages-2Mi": "2Mi"})
    values = pod_values(pod, pids_limit=100)
    assert values.pids == 100
    assert values.huge_pages == {"2MB": 6 << 20}
    assert pod_values(pod).pids is None


def test_burstable_pods_weigh_as_much_as_they_request_together() -> None:
    burstable = a_pod(asking({"cpu": "500m"}), overhead={"cpu": "250m"})
    others = [a_pod(), a_pod(asking(SMALL, SMALL))]
    assert burstable_values([burstable, burstable, *others]) == CgroupValues(shares=1536)
    assert burstable_values(others) == CgroupValues(shares=2)


@pytest.mark.parametrize(
    ("shares", "wanted"), [(2, 1), (102, 4), (1024, 39), (262143, 9999), (262144, 10000)]
)
def test_weights(shares: int, wanted: int) -> None:
    assert weight(shares) == wanted


@given(st.integers(2, 262144), st.integers(2, 262144))
def test_weights_keep_the_order_of_shares(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert 1 <= weight(low) <= weight(high) <= 10000


FULL = CgroupValues(
    shares=1024, quota_us=50_000, memory_bytes=1 << 20, pids=7, huge_pages={"2MB": 9}
)


def test_files_of_version_one() -> None:
    assert v1_files(FULL) == [
        ("cpu", "cpu.shares", "1024"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("memory", "memory.limit_in_bytes", "1048576"),
        ("pids", "pids.max", "7"),
        ("hugetlb", "hugetlb.2MB.limit_in_bytes", "9"),
    ]


def test_files_of_version_two() -> None:
    assert v2_files(FULL) == [
        ("cpu", "cpu.weight", "39"),
        ("cpu", "cpu.max", "50000 100000"),
        ("memory", "memory.max", "1048576"),
        ("pids", "pids.max", "7"),
        ("hugetlb", "hugetlb.2MB.max", "9"),
    ]


@pytest.mark.parametrize("quota", [0, UNLIMITED])
def test_limits_are_lifted(quota: int) -> None:
    values = CgroupValues(quota_us=quota, memory_bytes=UNLIMITED, pids=UNLIMITED)
    assert v1_files(values)[1:] == [
        ("cpu", "cpu.cfs_quota_us", "-1"),
        ("memory", "memory.limit_in_bytes", "-1"),
        ("pids", "pids.max", "max"),
    ]
    assert v2_files(values) == [
        ("cpu", "cpu.max", "max 100000"),
        ("memory", "memory.max", "max"),
        ("pids", "pids.max", "max"),
    ]


def test_unset_values_are_left_to_the_kernel() -> None:
    assert v1_files(CgroupValues()) == []
    assert v2_files(CgroupValues()) == []
