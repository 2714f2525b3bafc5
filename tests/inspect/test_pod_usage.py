"""Usage of pods from a node's summary."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.inspect.top import PodUsage, summary_usage

MIB = 2**20


def usage_of(pod: Any) -> PodUsage:
    ref = {"podRef": {"name": "web", "namespace": "shop"}}
    usages = summary_usage(msgspec.json.encode({"node": {}, "pods": [ref | pod]}))
    return usages["shop/web"]


def use(memory: int, rate: int | None = None) -> dict[str, Any]:
    cpu = {"usageCoreNanoSeconds": 5} | ({} if rate is None else {"usageNanoCores": rate})
    return {"cpu": cpu, "memory": {"workingSetBytes": memory}}


def test_the_overhead_is_what_the_pod_uses_beside_its_containers() -> None:
    pod = use(30 * MIB, 500_000_000) | {"containers": [use(10 * MIB, 200_000_000), use(4 * MIB)]}
    assert usage_of(pod) == PodUsage(
        cpu_ns=5, cpu_cores=0.5, memory_bytes=30 * MIB, overhead_cpu_cores=0.3,
        overhead_memory_bytes=16 * MIB,
    )  # fmt: skip


def test_it_is_unknown_where_the_runtime_counts_as_the_container() -> None:
    usage = usage_of(use(24 * MIB, 9) | {"containers": [use(24 * MIB, 9)]})
    assert (usage.overhead_memory_bytes, usage.overhead_cpu_cores) == (None, None)
    # A small pod has nothing to hide.
    assert usage_of(use(MIB) | {"containers": [use(MIB)]}).overhead_memory_bytes == 0


@pytest.mark.parametrize("pod", [{}, {"cpu": None, "memory": None, "containers": None}])
def test_what_is_not_there_is_unknown(pod: Any) -> None:
    assert usage_of(pod) == PodUsage()


@pytest.mark.parametrize("body", [b"", b"[]", b'{"pods":5}', b'{"pods":[{"cpu":"much"}]}'])
def test_a_body_that_is_no_summary_is_an_error(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        summary_usage(body)
    assert summary_usage(b"{}") == {}
