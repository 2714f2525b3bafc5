from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.pods import Pod
from moorage.node.config.container import (
    MAX_SHARES,
    MIN_SHARES,
    container_resources,
    oom_score_adj,
    overhead_resources,
    page_name,
    quota_us,
    sandbox_resources,
    shares,
)
from moorage.wire.cri import pb
from tests.node.objects import Wire, a_pod, wire_container

GI = 1 << 30
MI = 1 << 20


def asking(requests: Wire | None = None, limits: Wire | None = None, **fields: Any) -> Wire:
    resources = {"requests": requests or {}, "limits": limits or {}}
    return wire_container(fields.pop("name", "app"), resources=resources, **fields)


def linux(pod: Pod, index: int = 0, floor: int = -1000) -> pb.LinuxContainerResources:
    return container_resources(
        pod, pod.spec.containers[index], memory_capacity_bytes=8 * GI, oom_score_floor=floor
    )


@pytest.mark.parametrize(
    ("milli", "wanted"), [(0, 2), (1, 2), (2, 2), (100, 102), (1000, 1024), (300_000, 262144)]
)
def test_shares(milli: int, wanted: int) -> None:
    assert shares(milli) == wanted


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_more_cpu_never_weighs_less(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert MIN_SHARES <= shares(low) <= shares(high) <= MAX_SHARES


@pytest.mark.parametrize(
    ("milli", "wanted"), [(0, 0), (1, 1000), (10, 1000), (11, 1100), (500, 50_000), (2000, 200_000)]
)
def test_quota_is_none_without_limit_and_at_least_a_millisecond(milli: int, wanted: int) -> None:
    assert quota_us(milli) == wanted


@pytest.mark.parametrize(
    ("container", "cpu_shares", "quota", "memory"),
    [
        (asking(), 2, 0, 0),
        (asking({"cpu": "100m", "memory": "64Mi"}), 102, 0, 0),
        (asking({"cpu": "100m"}, {"cpu": "300m", "memory": "60Mi"}), 102, 30_000, 60 * MI),
        (asking(None, {"cpu": "300m"}), 307, 30_000, 0),
        (asking({"cpu": "0"}, {"cpu": "1"}), 2, 100_000, 0),
    ],
    ids=["nothing", "requests", "both", "limit stands in", "request of zero"],
)
def test_a_containers_limits(container: Wire, cpu_shares: int, quota: int, memory: int) -> None:
    linux_config = linux(a_pod(container))
    assert (linux_config.cpu_period, linux_config.cpu_shares) == (100_000, cpu_shares)
    assert (linux_config.cpu_quota, linux_config.memory_limit_in_bytes) == (quota, memory)


def test_limits_of_the_pod_hold_for_containers_without_their_own() -> None:
    pod = a_pod(
        asking(None, {"memory": "100Mi"}),
        asking(name="other"),
        resources={"limits": {"cpu": "1", "memory": "500Mi"}},
    )
    assert linux(pod).memory_limit_in_bytes == 100 * MI
    assert linux(pod, 1).memory_limit_in_bytes == 500 * MI
    assert linux(pod, 1).cpu_quota == 100_000


def test_huge_pages_are_named_as_the_kernel_names_them() -> None:
    linux_config = linux(a_pod(asking(None, {"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"})))
    pages = [(limit.page_size, limit.limit) for limit in linux_config.hugepage_limits]
    assert pages == [("1GB", GI), ("2MB", 4 * MI)]


@pytest.mark.parametrize(
    ("size", "name"), [(2 * MI, "2MB"), (GI, "1GB"), (64 * 1024, "64KB"), (512, "512B")]
)
def test_page_names(size: int, name: str) -> None:
    assert page_name(size) == name


GUARANTEED = {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("pod", "score"),
    [
        (a_pod(asking(GUARANTEED, GUARANTEED)), -997),
        (a_pod(), 1000),
        (a_pod(asking({"memory": "4Gi"})), 500),
        (a_pod(asking({"cpu": "1"})), 999),
        (a_pod(asking({"memory": "8Gi"})), 3),
        (a_pod(asking({"memory": "80Gi"})), 3),
        (a_pod(priority=2_000_001_000), -997),
    ],
    ids=["guaranteed", "best effort", "half", "tiny", "all", "more than all", "critical"],
)
def test_oom_scores(pod: Pod, score: int) -> None:
    assert oom_score_adj(pod, pod.spec.containers[0], 8 * GI) == score


def test_a_sidecar_dies_no_sooner_than_the_smallest_main_container() -> None:
    pod = a_pod(
        asking({"memory": "4Gi"}),
        initContainers=[
            asking({"memory": "1Gi"}, name="side", restartPolicy="Always"),
            asking({"memory": "1Gi"}, name="init"),
        ],
    )
    side, init = pod.spec.init_containers
    assert oom_score_adj(pod, side, 8 * GI) == 500
    assert oom_score_adj(pod, init, 8 * GI) == 875


def test_memory_of_the_pod_that_no_container_asked_for_is_shared_out() -> None:
    pod = a_pod(
        asking({"memory": "1Gi"}), asking(name="other"), resources={"requests": {"memory": "5Gi"}}
    )
    scores = [oom_score_adj(pod, container, 8 * GI) for container in pod.spec.containers]
    assert scores == [625, 750]


def test_a_score_below_what_the_engine_may_set_is_raised() -> None:
    assert linux(a_pod(asking(GUARANTEED, GUARANTEED)), floor=-500).oom_score_adj == -500
    assert linux(a_pod(), floor=-500).oom_score_adj == 1000


def test_sandbox_receives_its_overhead_and_the_containers_sum() -> None:
    pod = a_pod(
        asking({"cpu": "100m"}, {"cpu": "300m", "memory": "60Mi"}),
        overhead={"cpu": "200m", "memory": "140Mi"},
    )
    assert overhead_resources(pod) == pb.LinuxContainerResources(
        cpu_period=100_000, cpu_quota=20_000, cpu_shares=204, memory_limit_in_bytes=146800640
    )
    assert sandbox_resources(pod) == pb.LinuxContainerResources(
        cpu_period=100_000, cpu_quota=30_000, cpu_shares=102, memory_limit_in_bytes=62914560
    )


@pytest.mark.parametrize(
    ("overhead", "wanted"),
    [
        ({}, pb.LinuxContainerResources()),
        (
            {"memory": "1Mi"},
            pb.LinuxContainerResources(cpu_period=100_000, cpu_shares=2, memory_limit_in_bytes=MI),
        ),
    ],
    ids=["none is an empty message", "memory alone"],
)
def test_overhead_in_part(overhead: Wire, wanted: pb.LinuxContainerResources) -> None:
    assert overhead_resources(a_pod(overhead=overhead)) == wanted
