"""How many pods a metric calls for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.clock import format_time
from moorage.api.pods import Pod
from moorage.controllers.horizontalpodautoscalers.proposals import (
    PodUsage,
    Proposal,
    ProposalError,
    Readiness,
    Tolerances,
    group_pods,
    propose_by_total,
    propose_by_utilization,
    propose_by_value,
    propose_per_pod,
    requests_of,
)
from tests.clocks import START

WINDOW = timedelta(seconds=15)
READINESS = Readiness(timedelta(minutes=5), timedelta(seconds=30))
TOLERANCES = Tolerances(0.1, 0.1)
OLD = START - timedelta(hours=1)


def pod(
    name: str,
    cpu: str | None = "1",
    *,
    phase: str = "Running",
    ready: str = "True",
    started_s: float = 3600,
    changed_s: float = 3500,
    **spec: Any,
) -> Pod:
    """Return a pod that was started and became ready so many seconds ago."""
    requests = {} if cpu is None else {"cpu": cpu}
    changed = format_time(START - timedelta(seconds=changed_s))
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}], **spec},
            "status": {
                "phase": phase,
                "startTime": format_time(START - timedelta(seconds=started_s)),
                "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": changed}],
            },
        },
        Pod,
    )


def usages(*milli: int | None) -> dict[str, PodUsage]:
    """Return the usages of p0, p1, …; None for a pod without metrics."""
    return {
        f"p{index}": PodUsage(one, START, WINDOW)
        for index, one in enumerate(milli)
        if one is not None
    }


def by_utilization(
    pods: list[Pod], measured: dict[str, PodUsage], percent: int, current: int | None = None
) -> Proposal:
    groups = group_pods(pods, measured, "cpu", START, READINESS)
    return propose_by_utilization(
        len(pods) if current is None else current,
        percent,
        pods,
        measured,
        lambda: requests_of(pods, "", "cpu"),
        groups,
        TOLERANCES,
    )


def by_value(
    pods: list[Pod], measured: dict[str, PodUsage], milli: int, resource: str = "cpu"
) -> Proposal:
    groups = group_pods(pods, measured, resource, START, READINESS)
    return propose_by_value(len(pods), milli, pods, measured, groups, TOLERANCES)


def pods_of(count: int, **fields: Any) -> list[Pod]:
    return [pod(f"p{index}", **fields) for index in range(count)]


@pytest.mark.parametrize(
    ("milli", "percent", "proposal"),
    [
        # All measured: ready pods times the ratio, rounded up.
        ((300, 500, 700), 30, Proposal(5, 500, 50)),
        ((100, 100, 100), 50, Proposal(1, 100, 10)),
        ((110, 110), 10, Proposal(2, 110, 11)),
        ((115, 115), 10, Proposal(2, 115, 11)),
        ((120, 120), 10, Proposal(3, 120, 12)),
        ((90, 90), 10, Proposal(2, 90, 9)),
        ((80, 80), 10, Proposal(2, 80, 8)),
        ((400, 400), 100, Proposal(1, 400, 40)),
        ((0, 0), 80, Proposal(0, 0, 0)),
        # One is missing: nothing on the way up, all of its request on the way down.
        ((300, 500, None), 30, Proposal(3, 400, 40)),
        ((400, 950, None), 30, Proposal(5, 675, 67)),
        ((100, 100, None), 50, Proposal(3, 100, 10)),
        ((100, 100, 100, 100, None), 50, Proposal(3, 100, 10)),
        # At a target above 100 % the missing one counts as using that.
        ((100, 100, None), 200, Proposal(2, 100, 10)),
        ((500, 500, None), 50, Proposal(3, 500, 50)),
    ],
)  # fmt: skip
def test_utilization(milli: tuple[int | None, ...], percent: int, proposal: Proposal) -> None:
    assert by_utilization(pods_of(len(milli)), usages(*milli), percent) == proposal


@pytest.mark.parametrize(
    ("milli", "target", "proposal"),
    [
        ((300, 500, 700), 300, Proposal(5, 500)),
        ((100, 100, 100), 300, Proposal(1, 100)),
        ((105, 105), 100, Proposal(2, 105)),
        ((300, 500, None), 300, Proposal(3, 400)),
        ((900, 900, None), 300, Proposal(6, 900)),
        ((10, 10, 10, 10, None), 100, Proposal(2, 10)),
    ],
)
def test_values(milli: tuple[int | None, ...], target: int, proposal: Proposal) -> None:
    assert by_value(pods_of(len(milli)), usages(*milli), target) == proposal


@pytest.mark.parametrize(
    ("fields", "group"),
    [
        ({}, "ready"),
        ({"phase": "Failed"}, "ignored"),
        ({"phase": "Pending"}, "unready"),
        # Long ago: only a pod that was never ready is left out.
        ({"ready": "False", "started_s": 3600, "changed_s": 3500}, "ready"),
        ({"ready": "False", "started_s": 3600, "changed_s": 3590}, "unready"),
        ({"ready": "Unknown", "started_s": 3600, "changed_s": 3590}, "ready"),
        # Just started: it must be ready for a whole window.
        ({"started_s": 100, "changed_s": 16}, "ready"),
        ({"started_s": 100, "changed_s": 14}, "unready"),
        ({"ready": "False", "started_s": 100, "changed_s": 50}, "unready"),
    ],
)
def test_groups(fields: dict[str, Any], group: str) -> None:
    groups = group_pods([pod("p0", **fields)], usages(1), "cpu", START, READINESS)
    found = {
        "ready": groups.ready == 1,
        "unready": groups.unready == {"p0"},
        "missing": bool(groups.missing),
        "ignored": groups.ignored == {"p0"},
    }
    assert found == dict.fromkeys(found, False) | {group: True}


def test_readiness_counts_for_cpu_alone() -> None:
    starting = [pod("p0", ready="False", started_s=10, changed_s=5)]
    assert group_pods(starting, usages(1), "memory", START, READINESS).ready == 1
    assert group_pods(starting, {}, "cpu", START, READINESS).missing == {"p0"}
    bare = msgspec.convert({"metadata": {"name": "p0"}, "status": {"phase": "Running"}}, Pod)
    assert group_pods([bare], usages(1), "cpu", START, READINESS).unready == {"p0"}
    going = msgspec.structs.replace(
        bare, metadata=msgspec.structs.replace(bare.metadata, deletion_timestamp="x")
    )
    assert group_pods([going], usages(1), "cpu", START, READINESS).ignored == {"p0"}


def test_unready_pods_use_nothing_on_the_way_up_and_do_not_count_on_the_way_down() -> None:
    starting = pod("p2", ready="False", started_s=10, changed_s=5)
    pods = [*pods_of(2), starting]
    assert by_utilization(pods, usages(600, 600, 900), 30) == Proposal(4, 600, 60)
    assert by_utilization(pods, usages(400, 400, 900), 30) == Proposal(3, 400, 40)
    assert by_utilization(pods, usages(100, 100, 900), 30) == Proposal(1, 100, 10)


def test_more_pods_below_the_target_are_no_proposal() -> None:
    pods = pods_of(5)
    assert by_utilization(pods, usages(10, 10, 10, 10, None), 200, current=1).replicas == 1


@pytest.mark.parametrize(
    ("pods", "measured", "text"),
    [
        ([], usages(1), "no pods returned by selector while calculating replica count"),
        (pods_of(1), {}, "did not receive metrics for targeted pods (pods might be unready)"),
        (pods_of(1, phase="Pending"), usages(1),
         "did not receive metrics for targeted pods (pods might be unready)"),
        (pods_of(1, cpu=None), usages(1), "missing request for cpu in container c of Pod p0"),
        (pods_of(1, cpu="0"), usages(1), "no metrics returned matched known pods"),
    ],
)  # fmt: skip
def test_without_what_is_needed_there_is_no_proposal(
    pods: list[Pod], measured: dict[str, PodUsage], text: str
) -> None:
    with pytest.raises(ProposalError) as failure:
        by_utilization(pods, measured, 50)
    assert str(failure.value) == text


SIDECAR = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "250m"}}}
FIRST = {"name": "i", "resources": {"requests": {"cpu": "9"}}}


@pytest.mark.parametrize(
    ("spec", "container", "resource", "milli"),
    [
        ({}, "", "cpu", 1000),
        ({"initContainers": [SIDECAR, FIRST]}, "", "cpu", 1250),
        ({"initContainers": [SIDECAR, FIRST]}, "s", "cpu", 250),
        ({"resources": {"requests": {"cpu": "3"}}}, "", "cpu", 3000),
        ({"resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "500m"}}, "", "cpu", 3500),
        ({"resources": {"requests": {"memory": "1Gi"}}}, "", "cpu", 1000),
        ({"resources": {"requests": {"cpu": "3"}}}, "c", "cpu", 1000),
        ({"resources": {"requests": {"cpu": "3"}}}, "", "memory",
         "missing pod-level request for memory in Pod p0"),
        ({}, "x", "cpu", "container x not found in Pod p0"),
        ({}, "c", "memory", "missing request for memory in container c of Pod p0"),
    ],
)  # fmt: skip
def test_requests(spec: dict[str, Any], container: str, resource: str, milli: int | str) -> None:
    pods = [pod("p0", **spec)]
    if isinstance(milli, int):
        assert requests_of(pods, container, resource) == {"p0": milli}
        return
    with pytest.raises(ProposalError) as failure:
        requests_of(pods, container, resource)
    assert str(failure.value) == milli


@pytest.mark.parametrize(
    ("total", "target", "proposal"),
    [
        (3000, 1000, Proposal(6, 3000)),
        (1100, 1000, Proposal(2, 1100)),
        (100, 1000, Proposal(1, 100)),
        (0, 1000, Proposal(0, 0)),
        (2**70, 1, Proposal(2**31 - 1, 2**70)),
    ],
)
def test_totals(total: int, target: int, proposal: Proposal) -> None:
    waiting = pod("w", phase="Pending")
    pods = [*pods_of(2), pod("u", ready="False"), waiting]
    assert propose_by_total(2, total, target, pods, TOLERANCES) == proposal


def test_totals_need_pods_unless_they_are_at_the_target() -> None:
    assert propose_by_total(3, 10, 10, [], TOLERANCES).replicas == 3
    with pytest.raises(ProposalError, match="no pods returned by selector"):
        propose_by_total(3, 20, 10, [], TOLERANCES)


@pytest.mark.parametrize(
    ("replicas", "total", "proposal"),
    [
        (2, 2000, Proposal(2, 1000)),
        (2, 2201, Proposal(3, 1101)),
        (2, 2199, Proposal(2, 1100)),
        (4, 1, Proposal(1, 1)),
        (0, 2500, Proposal(3, 2500)),
    ],
)
def test_totals_per_pod(replicas: int, total: int, proposal: Proposal) -> None:
    assert propose_per_pod(replicas, total, 1000, TOLERANCES) == proposal


MILLI = st.lists(st.integers(0, 10_000), min_size=1, max_size=20)
SOME = st.lists(st.none() | st.integers(0, 10_000), min_size=1, max_size=20).filter(
    lambda values: any(value is not None for value in values)
)


@given(MILLI, st.integers(1, 500), st.integers(0, 1000))
def test_more_usage_never_calls_for_fewer_pods(milli: list[int], percent: int, more: int) -> None:
    pods = pods_of(len(milli))
    less = by_utilization(pods, usages(*milli), percent).replicas
    greater = by_utilization(pods, usages(*(one + more for one in milli)), percent).replicas
    # Within the tolerance the present number stays, which may be one more than the rounded one.
    assert greater >= less - 1
    if more >= 1000 * percent // 100:
        assert greater >= less


@given(SOME, st.integers(1, 500))
def test_pods_without_metrics_only_make_a_change_smaller(
    milli: list[int | None], percent: int
) -> None:
    known = [one for one in milli if one is not None]
    all_known = by_utilization(pods_of(len(known)), usages(*known), percent, current=len(milli))
    proposal = by_utilization(pods_of(len(milli)), usages(*milli), percent)
    ratio = all_known.percent or 0
    if ratio > percent:
        assert proposal.replicas >= len(milli)
    if ratio < percent:
        assert proposal.replicas <= len(milli)


@given(SOME, st.integers(1, 10_000))
def test_values_and_utilization_of_equal_requests_agree_on_the_direction(
    milli: list[int | None], target: int
) -> None:
    proposal = by_value(pods_of(len(milli)), usages(*milli), target, "memory")
    if proposal.average_milli > target * 1.1 + 1:
        assert proposal.replicas >= len(milli)
    if proposal.average_milli < target * 0.9 - 1:
        assert proposal.replicas <= len(milli)
