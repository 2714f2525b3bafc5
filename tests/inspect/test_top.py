"""Rows of `moor top`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.pods import Pod
from moorage.api.runtime_group import MEASUREMENT_LABEL, RuntimeClass
from moorage.inspect.top import ClassRow, PodUsage, Start, has_failed, rows_of, start_of

CREATED = "2026-01-01T00:00:07Z"
STARTED = "2026-01-01T00:00:10Z"
STARTED_S = 1767225610.0


def a_class(name: str, **more: Any) -> RuntimeClass:
    return msgspec.convert({"metadata": {"name": name}, "handler": name, **more}, RuntimeClass)


def a_pod(name: str, runtime_class: str | None = "gvisor", **status: Any) -> Pod:
    scheduled = {"type": "PodScheduled", "status": "True",
                 "lastTransitionTime": "2026-01-01T00:00:08Z"}  # fmt: skip
    usual = {
        "phase": "Running",
        "conditions": [scheduled, {"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "app", "state": {"running": {"startedAt": STARTED}}}],
    }
    wire = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "creationTimestamp": "2026-01-01T00:00:07Z",
        },
        "spec": {"runtimeClassName": runtime_class, "containers": [{"name": "app"}]},
        "status": usual | status,
    }
    return msgspec.convert(wire, Pod)


def waiting(reason: str, **last: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"name": "app", "restartCount": 2}
    status |= {"state": {"waiting": {"reason": reason}}, "lastState": last}
    return {"containerStatuses": [status]}


def test_a_row_for_each_class_and_one_for_pods_without_or_with_a_deleted_one() -> None:
    pods = [a_pod("a"), a_pod("b", None), a_pod("c", "gone")]
    rows = rows_of(pods, [a_class("gvisor"), a_class("kata")], [], {}, 0)
    assert [(row.runtime_class, row.handler, row.pods) for row in rows] == [
        ("-", "", 1), ("gone", "", 1), ("gvisor", "gvisor", 1), ("kata", "kata", 0),
    ]  # fmt: skip


def test_classes_of_probes_and_measurements_have_no_row() -> None:
    measured = {MEASUREMENT_LABEL: "a"}
    classes = [
        a_class("gvisor"),
        a_class("moorage-probe-x"),
        a_class("of-bench", metadata={"name": "of-bench", "labels": measured}),
    ]
    pods = [a_pod("a"), a_pod("b", "moorage-probe-x"), a_pod("c", "moorage-probe-gone")]
    rows = rows_of([*pods, a_pod("d", "of-bench")], classes, [], {}, 0)
    assert [row.runtime_class for row in rows] == ["gvisor"]


def test_the_figures_of_a_class() -> None:
    overhead = {"podFixed": {"memory": "32Mi"}}
    pods = [a_pod("a"), a_pod("b"), a_pod("c", phase="Pending"), a_pod("d", phase="Failed"),
            a_pod("e", **waiting("CrashLoopBackOff", terminated={"exitCode": 1}))]  # fmt: skip
    starts = [Start("gvisor", 100.0 - age, 1000.0 * age, False) for age in (1, 2, 3, 90)]
    usages = {
        "shop/a": PodUsage(memory_bytes=10, overhead_memory_bytes=4, cpu_cores=0.25),
        "shop/b": PodUsage(memory_bytes=20, cpu_cores=0.5),
        "shop/d": PodUsage(memory_bytes=99),
    }
    (row,) = rows_of(pods, [a_class("gvisor", overhead=overhead)], starts, usages, 100.0)
    assert row == ClassRow(
        runtime_class="gvisor", handler="gvisor", pods=5, running=3, pending=1, failed=2,
        restarts=2, starts_per_s=0.05, start_p50_ms=3000.0, start_p90_ms=90_000.0,
        overhead_used_bytes=4, overhead_declared_bytes=32 * 2**20, memory_bytes=30,
        cpu_cores=0.75,
    )  # fmt: skip


def test_exact_starts_are_not_mixed_with_those_in_whole_seconds() -> None:
    starts = [Start("gvisor", 0, 63.0, True), Start("gvisor", 0, 5000.0, False)]
    (row,) = rows_of([], [a_class("gvisor")], starts, {}, 0)
    assert (row.start_p50_ms, row.start_p90_ms, row.is_exact) == (63.0, 63.0, True)


def test_a_start_is_dated_by_the_last_container() -> None:
    assert start_of(a_pod("a")) == Start("gvisor", STARTED_S, 3000.0, False)
    assert start_of(a_pod("a", containerStatuses=[])) is None
    assert start_of(a_pod("a", conditions=[])) is None


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, False),
        ({"phase": "Failed"}, True),
        ({"phase": "Succeeded"}, False),
        (waiting("ContainerCreating"), False),
        (waiting("ImagePullBackOff"), True),
        (waiting("CrashLoopBackOff"), True),
        (waiting("Unheard", terminated={"exitCode": 2}), True),
    ],
)
def test_failures(status: dict[str, Any], expected: bool) -> None:
    assert has_failed(a_pod("a", **status)) == expected


@pytest.mark.parametrize("memory", ["many", None, ""])
def test_a_declared_overhead_that_is_no_quantity_is_unknown(memory: str | None) -> None:
    pod_fixed = {} if memory is None else {"memory": memory}
    (row,) = rows_of([], [a_class("a", overhead={"podFixed": pod_fixed})], [], {}, 0)
    assert row.overhead_declared_bytes is None
