from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.api.pods import Pod
from moorage.api.runtime_group import RuntimeClass
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.cycle import Cycle, Unschedulable, sample_size
from moorage.scheduler.filters import RUNTIME_HANDLER
from moorage.scheduler.query import QueryCache
from tests.scheduler.objects import (
    HOSTNAME,
    ZONE,
    a_class,
    a_cluster,
    a_node,
    a_pod,
    anti_affinity,
    pod_affinity,
    spread,
)


def decide(state: ClusterState, pod: Pod, *classes: RuntimeClass) -> str | Unschedulable:
    by_name = {runtime_class.metadata.name: runtime_class for runtime_class in classes}
    query = QueryCache().of_waiting(pod, by_name.get)
    return Cycle(state, random.Random(1)).decide(pod, query)


def message(state: ClusterState, pod: Pod, *classes: RuntimeClass) -> str:
    outcome = decide(state, pod, *classes)
    assert isinstance(outcome, Unschedulable)
    return outcome.message


def place_all(state: ClusterState, pods: list[Pod]) -> list[str | None]:
    """Each pod decided and assumed in turn; None where it found no node."""
    cycle, queries = Cycle(state, random.Random(1)), QueryCache()
    nodes: list[str | None] = []
    for pod in pods:
        query = queries.of_waiting(pod, lambda _: None)
        outcome = cycle.decide(pod, query)
        if isinstance(outcome, str):
            state.assume(pod, query, outcome)
            nodes.append(outcome)
        else:
            nodes.append(None)
    return nodes


def test_reasons_are_counted_and_sorted_as_text() -> None:
    state = a_cluster(
        a_node("n1", taints=("rt=kata:NoSchedule",)),
        a_node("n2", labels={"disk": "ssd"}, cpu="0"),
        a_node("n3"),
        a_node("n4"),
    )
    assert message(state, a_pod(cpu="1", nodeSelector={"disk": "ssd"})) == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
        "2 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
        "preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling."
    )


def test_a_node_full_of_equals_has_no_victims() -> None:
    state = a_cluster(a_node(cpu="1"), a_pod("other", cpu="1", node="n1"))
    assert message(state, a_pod(cpu="1")) == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_the_event_names_the_handler_that_is_lacking() -> None:
    state = a_cluster(a_node(handlers=("", "runc")))
    pod = a_pod(runtimeClassName="kata")
    assert message(state, pod, a_class("kata")).startswith(
        '0/1 nodes are available: 1 node(s) lack runtime handler "kata". '
    )


def test_the_class_is_resolved_to_its_handler() -> None:
    state = a_cluster(a_node("n1", handlers=("runc",)), a_node("n2", handlers=("kata-qemu",)))
    assert decide(state, a_pod(runtimeClassName="vm"), a_class("vm", "kata-qemu")) == "n2"


def test_a_class_that_vanished_is_named() -> None:
    state = a_cluster(a_node("n1"), a_node("n2"))
    assert message(state, a_pod(runtimeClassName="kata")) == (
        '0/2 nodes are available: RuntimeClass "kata" not found. no new claims to deallocate, '
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_without_the_handler_filter_any_node_will_do() -> None:
    queries = QueryCache(filters_by_handler=False)
    state = ClusterState(queries)
    state.set_node(a_node(handlers=("runc",)))
    pod = a_pod(runtimeClassName="kata")
    assert Cycle(state).decide(pod, queries.of_waiting(pod, lambda _: None)) == "n1"


def test_a_cluster_without_nodes_says_so() -> None:
    assert message(a_cluster(), a_pod()) == "no nodes available to schedule pods"


def test_contradicting_node_names_rule_out_every_node() -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("n1", "n2")]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    rule = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert message(a_cluster(a_node("n1"), a_node("n2")), a_pod(affinity=rule)).startswith(
        "0/2 nodes are available: pod affinity terms conflict. no new claims"
    )


def test_a_pod_that_never_preempts_says_so() -> None:
    state = a_cluster(a_node(cpu="1"), a_pod("other", cpu="1", node="n1", priority=0))
    assert message(state, a_pod(cpu="1", priority=10, preemptionPolicy="Never")) == (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
        "not eligible due to preemptionPolicy=Never."
    )


def test_the_emptier_node_is_chosen() -> None:
    state = a_cluster(a_node("n1"), a_node("n2"), a_pod("other", cpu="2", node="n1"))
    assert decide(state, a_pod(cpu="1")) == "n2"


def test_a_node_with_a_soft_taint_is_the_last_resort() -> None:
    state = a_cluster(
        a_node("n1", taints=("busy:PreferNoSchedule",)),
        a_node("n2"),
        a_pod("other", cpu="2", node="n2"),
    )
    assert decide(state, a_pod(cpu="1")) == "n2"


def test_a_preferred_node_is_chosen() -> None:
    preference = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    wish = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 10, "preference": preference}
            ]
        }
    }
    state = a_cluster(
        a_node("n1"),
        a_node("n2", labels={"disk": "ssd"}),
        a_pod("other", cpu="2", node="n2"),
    )
    assert decide(state, a_pod(cpu="1", affinity=wish)) == "n2"


def test_a_node_that_has_the_image_is_chosen() -> None:
    large = 900 * 1024 * 1024
    state = a_cluster(a_node("n1"), a_node("n2", images={"app:1": large}))
    assert decide(state, a_pod(cpu="1")) == "n2"


def test_ties_are_broken_at_random() -> None:
    nodes = set()
    for seed in range(40):
        state = a_cluster(*(a_node(f"n{number}") for number in range(4)))
        query = QueryCache().of_waiting(a_pod(), lambda _: None)
        nodes.add(Cycle(state, random.Random(seed)).decide(a_pod(), query))
    assert nodes == {"n0", "n1", "n2", "n3"}


def test_pods_of_one_controller_are_spread_over_nodes() -> None:
    state = a_cluster(*(a_node(f"n{number}") for number in range(3)))
    placements = place_all(state, [a_pod(f"p{number}", owner="set") for number in range(6)])
    assert sorted(map(str, placements)) == ["n0", "n0", "n1", "n1", "n2", "n2"]


def test_anti_affinity_puts_one_pod_on_a_node() -> None:
    rule = anti_affinity({"app": "web"})
    pods = [a_pod(f"p{n}", labels={"app": "web"}, affinity=rule) for n in range(3)]
    state = a_cluster(a_node("n1"), a_node("n2"))
    placements = place_all(state, pods)
    assert {placements[0], placements[1]} == {"n1", "n2"}
    assert placements[2] is None
    assert "2 node(s) didn't match pod anti-affinity rules" in message(state, pods[2])


def test_anti_affinity_of_running_pods_holds_for_newcomers() -> None:
    rule = anti_affinity({"app": "noisy"})
    state = a_cluster(a_node("n1"), a_pod("quiet", node="n1", affinity=rule))
    noisy = a_pod("noisy", labels={"app": "noisy"})
    assert "1 node(s) didn't satisfy existing pods anti-affinity rules" in message(state, noisy)
    assert decide(state, a_pod("other", labels={"app": "other"})) == "n1"


def test_affinity_follows_the_pod_it_means() -> None:
    state = a_cluster(
        a_node("n1", labels={ZONE: "a"}),
        a_node("n2", labels={ZONE: "b"}),
        a_pod("db", node="n2", labels={"app": "db"}),
    )
    assert decide(state, a_pod(affinity=pod_affinity({"app": "db"}, ZONE))) == "n2"
    assert "2 node(s) didn't match pod affinity rules" in message(
        state, a_pod(affinity=pod_affinity({"app": "cache"}, ZONE))
    )


def test_the_first_of_a_group_that_wants_to_be_together_finds_a_node() -> None:
    rule = pod_affinity({"app": "web"}, ZONE)
    pods = [a_pod(f"p{n}", labels={"app": "web"}, affinity=rule) for n in range(3)]
    state = a_cluster(a_node("n1", labels={ZONE: "a"}), a_node("n2", labels={ZONE: "b"}))
    placements = place_all(state, pods)
    assert None not in placements
    assert len(set(placements)) == 1


@pytest.mark.parametrize(
    ("selector", "expected"), [({"team": "a"}, "n2"), ({"team": "b"}, None), ({}, "n2")]
)
def test_namespace_selectors_reach_into_other_namespaces(
    selector: dict[str, str], expected: str | None
) -> None:
    rule: dict[str, Any] = pod_affinity({"app": "db"})
    term = rule["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    term["namespaceSelector"] = {"matchLabels": selector}
    state = a_cluster(
        a_node("n1"), a_node("n2"), a_pod("db", namespace="data", node="n2", labels={"app": "db"})
    )
    state.set_namespace("data", {"team": "a"})
    outcome = decide(state, a_pod(affinity=rule))
    assert (outcome if isinstance(outcome, str) else None) == expected


def test_hard_spread_keeps_zones_even() -> None:
    web = {"app": "web"}
    pods = [a_pod(f"p{n}", labels=web, topologySpreadConstraints=[spread(web)]) for n in range(6)]
    state = a_cluster(
        a_node("n1", labels={ZONE: "a"}),
        a_node("n2", labels={ZONE: "a"}),
        a_node("n3", labels={ZONE: "b"}),
    )
    placements = place_all(state, pods)
    assert placements.count("n3") == 3


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (spread({"app": "web"}), "didn't match pod topology spread constraints, "),
        (spread({"app": "web"}, "rack"), "constraints (missing required label)"),
        (spread({"app": "web"}, minDomains=3), "didn't match pod topology spread constraints"),
    ],
)
def test_a_skewed_or_unlabelled_node_is_refused(constraint: dict[str, Any], expected: str) -> None:
    web = {"app": "web"}
    state = a_cluster(
        a_node("n1", labels={ZONE: "a"}),
        a_node("n2", labels={ZONE: "b"}, cpu="0"),
        a_pod("p1", node="n1", labels=web),
    )
    pod = a_pod("p2", cpu="1", labels=web, topologySpreadConstraints=[constraint])
    assert expected.rstrip(", ") in message(state, pod)


def test_tainted_nodes_are_no_domain_when_the_policy_honors_taints() -> None:
    web = {"app": "web"}
    state = a_cluster(
        a_node("n1", labels={ZONE: "a"}),
        a_node("n2", labels={ZONE: "b"}, taints=("x:NoSchedule",)),
        a_pod("p1", node="n1", labels=web),
    )
    honoring = spread(web, nodeTaintsPolicy="Honor")
    pod = a_pod("p2", labels=web, topologySpreadConstraints=[honoring])
    ignoring = a_pod("p3", labels=web, topologySpreadConstraints=[spread(web)])
    assert decide(state, pod) == "n1"
    assert isinstance(decide(state, ignoring), Unschedulable)


def test_soft_spread_prefers_the_emptier_zone() -> None:
    web = {"app": "web"}
    soft = spread(web, when="ScheduleAnyway")
    state = a_cluster(
        a_node("n1", labels={ZONE: "a"}),
        a_node("n2", labels={ZONE: "b"}),
        a_pod("p1", node="n1", labels=web),
        a_pod("big", node="n2", cpu="1"),
    )
    assert decide(state, a_pod("p2", labels=web, topologySpreadConstraints=[soft])) == "n2"


def test_a_plan_follows_every_change_of_the_cluster() -> None:
    state, queries = a_cluster(a_node("n1", cpu="1")), QueryCache()
    cycle = Cycle(state, random.Random(1))
    pod = a_pod(cpu="1")
    query = queries.of_waiting(pod, lambda _: None)
    assert cycle.decide(pod, query) == "n1"
    state.set_pod(a_pod("other", cpu="1", node="n1"))
    assert isinstance(cycle.decide(pod, query), Unschedulable)
    state.set_node(a_node("n2", cpu="1"))
    assert cycle.decide(pod, query) == "n2"
    state.set_node(a_node("n2", cpu="1", taints=("x:NoSchedule",)))
    assert isinstance(cycle.decide(pod, query), Unschedulable)
    state.remove_pod(a_pod("other", cpu="1", node="n1"))
    assert cycle.decide(pod, query) == "n1"
    state.remove_node("n1")
    state.set_node(a_node("n1", cpu="1", unschedulable=True))
    assert isinstance(cycle.decide(pod, query), Unschedulable)


def test_room_is_kept_for_nominated_pods_of_higher_priority() -> None:
    state = a_cluster(a_node("n1", cpu="1"))
    queries = QueryCache()
    important = a_pod("important", cpu="1", priority=10)
    state.nominate(important, queries.of_waiting(important, lambda _: None), "n1")
    cycle = Cycle(state, random.Random(1))

    def outcome(pod: Pod) -> str | Unschedulable:
        return cycle.decide(pod, queries.of_waiting(pod, lambda _: None))

    assert isinstance(outcome(a_pod("low", cpu="1", priority=1)), Unschedulable)
    assert outcome(a_pod("higher", cpu="1", priority=11)) == "n1"
    assert outcome(important) == "n1"


def test_few_nodes_are_all_scored_and_many_by_share() -> None:
    assert [sample_size(count) for count in (1, 99, 100, 300, 1000, 5000)] == [
        1, 99, 100, 144, 200, 200,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("favourite", "is_seen"),
    # 100 of 120 nodes a pod: 0 to 99, 100 to 79, 80 to 59.
    [(10, [True, True, True]), (70, [True, True, False]), (119, [False, True, True])],
)
def test_each_pod_looks_at_the_nodes_that_the_last_one_did_not(
    favourite: int, is_seen: list[bool]
) -> None:
    nodes = [a_node(f"n{number}") for number in range(120)]
    friend = a_pod("friend", node=f"n{favourite}", labels={"app": "web"})
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": HOSTNAME}
    wish = {"weight": 100, "podAffinityTerm": term}
    pod = a_pod(
        affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    )
    cycle = Cycle(a_cluster(*nodes, friend), random.Random(1))
    query = QueryCache().of_waiting(pod, lambda _: None)
    assert sample_size(120) == 100
    assert [cycle.decide(pod, query) == f"n{favourite}" for _ in range(3)] == is_seen


_PODS = st.lists(
    st.tuples(
        st.integers(0, 3000),
        st.integers(0, 4096),
        st.sampled_from([0, 0, 80, 443]),
        st.sampled_from(["", "set"]),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(_PODS, st.lists(st.integers(0, 20), max_size=10))
def test_no_node_is_ever_overcommitted(
    wishes: list[tuple[int, int, int, str]], leaving: list[int]
) -> None:
    state = a_cluster(*(a_node(f"n{n}", cpu="4", memory="8Gi", pods="6") for n in range(3)))
    pods = [
        a_pod(f"p{n}", cpu=f"{cpu}m", memory=f"{memory}Mi", host_port=port, owner=owner)
        for n, (cpu, memory, port, owner) in enumerate(wishes)
    ]
    placements = place_all(state, pods)
    for index in leaving:
        if index < len(pods) and placements[index] is not None:
            state.forget(f"default/p{index}")
    place_all(state, [a_pod(f"late{n}", cpu="1", memory="2Gi") for n in range(8)])
    for node in state.nodes.values():
        assert len(node.pods) <= 6
        assert node.used.get("cpu", 0) <= 4000
        assert node.used.get("memory", 0) <= 8 * 1024**3
        assert all(count == 1 for count in node.ports.values())
        assert node.used.get("cpu", 0) == sum(p.query.cpu_milli for p in node.pods.values())


def test_an_honored_taint_takes_its_own_node_out_and_no_other() -> None:
    web = {"app": "web"}
    state = a_cluster(
        a_node("n1", labels={ZONE: "a"}),
        a_node("n2", labels={ZONE: "b"}, taints=("x:NoSchedule",)),
        a_node("n3", labels={ZONE: "c"}),
        a_pod("p1", node="n1", labels=web),
        a_pod("heavy", node="n3", cpu="3"),
    )
    honoring = spread(web, nodeTaintsPolicy="Honor")
    pod = a_pod("p2", labels=web, topologySpreadConstraints=[honoring])
    # Zone a would have two more than c, though its node is the emptier.
    assert decide(state, pod) == "n3"


@pytest.mark.parametrize(
    ("more", "is_taken"),
    [
        ({"owner": "set"}, True),
        ({"topologySpreadConstraints": [spread({"app": "web"}, HOSTNAME)]}, False),
    ],
)
def test_a_pod_goes_to_the_node_that_was_cleared_for_it_unless_others_forbid_it(
    more: dict[str, Any], is_taken: bool
) -> None:
    """Though another node has more room and none of its kind."""
    state = a_cluster(
        a_node("n1"),
        a_node("n2"),
        *(a_pod(f"w{i}", cpu="1", node="n1", owner="set", labels={"app": "web"}) for i in (1, 2)),
    )
    pod = a_pod(cpu="1", labels={"app": "web"}, nominated="n1", **more)
    assert decide(state, pod) == ("n1" if is_taken else "n2")


def test_what_rules_every_node_out_is_named() -> None:
    state = a_cluster(a_node("n1"))
    outcome = decide(state, a_pod(runtimeClassName="none"))
    assert isinstance(outcome, Unschedulable)
    assert (outcome.rejected_by, outcome.ends_nomination) == (frozenset({RUNTIME_HANDLER}), True)
    assert 'RuntimeClass "none" not found' in outcome.message
