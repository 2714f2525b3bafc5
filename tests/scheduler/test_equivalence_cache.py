"""What is kept from pod to pod must be what a fresh look would find."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.pods import Pod
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.equivalence_cache import EquivalenceCache
from moorage.scheduler.filters import local_rejection
from moorage.scheduler.inter_pod_affinity import InterPodAffinity
from moorage.scheduler.query import QueryCache
from tests.scheduler.objects import (
    ZONE,
    a_cluster,
    a_node,
    a_pod,
    anti_affinity,
    pod_affinity,
    spread,
)

WEB = {"app": "web"}
_SPECS: list[dict[str, Any]] = [
    {},
    {"affinity": anti_affinity(WEB)},
    {"affinity": pod_affinity(WEB, ZONE)},
    {"topologySpreadConstraints": [spread(WEB), spread(WEB, skew=2, when="ScheduleAnyway")]},
]
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["place", "place", "place", "remove", "taint", "lose", "join", "label"]),
        st.integers(0, 7),
        st.integers(0, 3),
        st.sampled_from(_SPECS),
    ),
    max_size=30,
)


def change(state: ClusterState, step: str, number: int, at: int) -> None:
    node = f"n{at}"
    zone = {ZONE: f"z{at % 2}"}
    match step:
        case "taint":
            state.set_node(a_node(node, labels=zone, taints=("x:NoSchedule", "y:PreferNoSchedule")))
        case "lose":
            state.remove_node(node)
        case "join":
            state.set_node(a_node(node, labels=zone))
        case "label":
            state.set_node(a_node(node, labels={ZONE: f"z{number % 3}", "disk": "ssd"}))
        case "remove":
            state.remove_pod(a_pod(f"p{number}"))


def place(state: ClusterState, number: int, at: int, spec: dict[str, Any]) -> None:
    state.set_pod(a_pod(f"p{number}", cpu="1", node=f"n{at}", labels=WEB, owner="set", **spec))


def a_start() -> ClusterState:
    return a_cluster(*(a_node(f"n{n}", labels={ZONE: f"z{n % 2}"}) for n in range(4)))


@settings(max_examples=60, deadline=None)
@given(_STEPS, st.sampled_from(_SPECS))
def test_a_kept_plan_equals_a_fresh_one(
    steps: list[tuple[str, int, int, dict[str, Any]]], spec: dict[str, Any]
) -> None:
    state = a_start()
    pod = a_pod("new", cpu="2", labels=WEB, owner="set", **spec)
    query = QueryCache().of_waiting(pod, lambda _: None)
    kept = EquivalenceCache(query, state, InterPodAffinity(pod, query, state), random.Random(1))
    for step, number, at, other in steps:
        if step == "place":
            place(state, number, at, other)
        else:
            change(state, step, number, at)
        kept.refresh()
        _check(kept, _fresh(pod, state), state)


def _fresh(pod: Pod, state: ClusterState) -> EquivalenceCache:
    query = QueryCache().of_waiting(pod, lambda _: None)
    plan = EquivalenceCache(query, state, InterPodAffinity(pod, query, state), random.Random(1))
    plan.refresh()
    return plan


def _check(kept: EquivalenceCache, fresh: EquivalenceCache, state: ClusterState) -> None:
    assert kept.local.keys() == fresh.local.keys()
    assert kept.local.keys() == {
        name for name, node in state.nodes.items() if local_rejection(fresh.query, node) is None
    }
    assert kept._standings.keys() <= state.nodes.keys()
    best = kept.best(None)
    if best is None:
        assert not kept.local
    else:
        assert kept.local[best] == max(kept.local.values())
    assert kept.cross is not None
    assert fresh.cross is not None
    nodes = list(state.nodes.values())
    assert [kept.cross.rejections(n) for n in nodes] == [fresh.cross.rejections(n) for n in nodes]
    assert kept.cross.spread_scores(nodes) == fresh.cross.spread_scores(nodes)
    assert kept.cross.affinity_scores(nodes) == fresh.cross.affinity_scores(nodes)


_SOFT = ("x:PreferNoSchedule", "y:PreferNoSchedule")


def test_a_scale_that_grows_scores_every_node_again() -> None:
    """What the most tainted and the most preferred node have is the measure for all."""
    wish = {"weight": 10, "preference": {"matchExpressions": [
        {"key": "disk", "operator": "In", "values": ["ssd"]}]}}  # fmt: skip
    other = {"weight": 5, "preference": {"matchExpressions": [
        {"key": "zone", "operator": "Exists"}]}}  # fmt: skip
    rule = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish, other]}}
    pod = a_pod("new", cpu="1", affinity=rule)
    state = a_cluster(a_node("n1"), a_node("n2"), a_node("n3"))
    kept = _fresh(pod, state)
    for node in (
        a_node("n1", taints=_SOFT[:1]),
        a_node("n2", labels={"zone": "a"}),
        a_node("n3", labels={"disk": "ssd"}),
        a_node("n1", taints=_SOFT),
        a_node("n2", labels={"zone": "a", "disk": "ssd"}, taints=_SOFT[:1]),
    ):
        state.set_node(node)
        kept.refresh()
        assert kept.local == _fresh(pod, state).local
    assert len(set(kept.local.values())) == 3


def test_entries_of_earlier_scores_do_not_pile_up() -> None:
    state = a_start()
    kept = _fresh(a_pod("new", cpu="2"), state)
    for number in range(400):
        place(state, number % 2, number % 4, {})
        kept.refresh()
        assert len(kept._heap) <= 4 * len(kept.local) + 64
        best = kept.best(None)
        assert best is not None
        assert kept.local[best] == max(kept.local.values())
