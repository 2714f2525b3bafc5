"""Spread and inter-pod affinity in numbers: exact scores and limits of small clusters."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from moorage.api.pods import Pod
from moorage.scheduler import scores
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.inter_pod_affinity import InterPodAffinity
from moorage.scheduler.query import make_query
from tests.scheduler.objects import HOSTNAME, ZONE, a_cluster, a_node, a_pod, spread

APP = {"app": "web"}
REQUIRED, PREFERRED = (
    f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred")
)


def checks(pod: Pod, state: ClusterState) -> InterPodAffinity:
    affinity = InterPodAffinity(pod, make_query(pod), state)
    affinity.refresh()
    return affinity


def term(labels: dict[str, str], key: str = ZONE) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key}


def wish(labels: dict[str, str], weight: int, key: str = ZONE) -> dict[str, Any]:
    return {"weight": weight, "podAffinityTerm": term(labels, key)}


def zones(*names: str, **more: Any) -> list[Any]:
    return [a_node(f"n{number}", labels={ZONE: name}, **more) for number, name in enumerate(names)]


def pods(*nodes: str, **more: Any) -> list[Pod]:
    labels = more.pop("labels", APP)
    return [
        a_pod(f"{node}-{number}-{len(more)}", node=node, labels=labels, **more)
        for number, node in enumerate(nodes)
    ]


def affinity_scores(pod: Pod, *objects: Any) -> list[int]:
    state = a_cluster(*objects)
    return checks(pod, state).affinity_scores(list(state.nodes.values()))


def test_weights_are_those_of_the_default_plugins() -> None:
    result = (scores.TAINT_WEIGHT, scores.NODE_AFFINITY_WEIGHT, scores.SPREAD_WEIGHT,
              scores.INTER_POD_AFFINITY_WEIGHT)  # fmt: skip
    assert result == (3, 2, 2, 2)


def test_wishes_draw_and_repel_by_their_weights() -> None:
    cluster = [*zones("a", "b", "c"), *pods("n0", "n0", "n1"),
               *pods("n2", labels={"app": "db"}, namespace="default", cpu="1")]  # fmt: skip
    pod = a_pod(affinity={
        "podAffinity": {PREFERRED: [wish(APP, 10)]},
        "podAntiAffinity": {PREFERRED: [wish({"app": "db"}, 5)]},
    })  # fmt: skip
    # 20, 10 and -5, stretched to 0 and 100.
    assert affinity_scores(pod, *cluster) == [100, 60, 0]


def test_a_node_without_the_key_gets_nothing() -> None:
    cluster = [*zones("a", "b"), a_node("bare"), *pods("n0", "bare")]
    pod = a_pod(affinity={"podAffinity": {PREFERRED: [wish(APP, 10)]}})
    assert affinity_scores(pod, *cluster) == [100, 0, 0]


def test_running_pods_have_wishes_about_the_new_one() -> None:
    wanting = {"podAffinity": {PREFERRED: [wish(APP, 3)]}}
    shunning = {"podAntiAffinity": {PREFERRED: [wish(APP, 2)]}}
    demanding = {"podAffinity": {REQUIRED: [term(APP)]}}
    cluster = [
        *zones("a", "b", "c", "d"),
        a_pod("x", node="n0", affinity=wanting),
        a_pod("y", node="n1", affinity=shunning),
        a_pod("z", node="n2", affinity=demanding),
    ]
    # 3, -2, 1 (what a requirement counts) and 0.
    assert affinity_scores(a_pod("new", labels=APP), *cluster) == [100, 0, 60, 40]
    assert affinity_scores(a_pod("new", labels={"app": "other"}), *cluster) == [0, 0, 0, 0]


def test_without_wishes_nothing_is_scored() -> None:
    state = a_cluster(*zones("a", "b"), *pods("n0"))
    affinity = checks(a_pod(labels=APP), state)
    assert not affinity.can_score
    assert not affinity.can_reject
    assert affinity.affinity_scores(list(state.nodes.values())) == [0, 0]
    assert affinity.spread_scores(list(state.nodes.values())) == [0, 0]


def spread_scores(pod: Pod, *objects: Any) -> list[int]:
    state = a_cluster(*objects)
    affinity = checks(pod, state)
    assert affinity.can_score
    return affinity.spread_scores(list(state.nodes.values()))


def upside_down(sums: list[float]) -> list[int]:
    whole = [int(total + 0.5) for total in sums]
    return [100 * (max(whole) + min(whole) - score) // max(whole) for score in whole]


def soft(key: str = ZONE, *, skew: int = 1, **more: Any) -> dict[str, Any]:
    return spread(APP, key, skew=skew, when="ScheduleAnyway", **more)


@pytest.mark.parametrize("skew", [1, 4])
def test_fewer_matching_pods_in_a_zone_score_higher(skew: int) -> None:
    cluster = [*zones("a", "a", "b", "c"), *pods("n0", "n1", "n1", "n2")]
    pod = a_pod(labels=APP, topologySpreadConstraints=[soft(skew=skew)])
    weight = math.log(3 + 2)
    sums = [count * weight + skew - 1 for count in (3, 3, 1, 0)]
    assert spread_scores(pod, *cluster) == upside_down(sums)


def test_by_host_every_node_is_a_domain() -> None:
    cluster = [*zones("a", "a", "b"), *pods("n0", "n0", "n1")]
    pod = a_pod(labels=APP, topologySpreadConstraints=[soft(HOSTNAME)])
    assert spread_scores(pod, *cluster) == upside_down([n * math.log(5) for n in (2, 1, 0)])


def test_two_constraints_are_added_up() -> None:
    cluster = [*zones("a", "a", "b"), *pods("n0", "n0", "n2")]
    pod = a_pod(labels=APP, topologySpreadConstraints=[soft(), soft(HOSTNAME, skew=2)])
    by_zone, by_host = math.log(2 + 2), math.log(3 + 2)
    sums = [2 * by_zone + 2 * by_host + 1, 2 * by_zone + 1, by_zone + by_host + 1]
    assert spread_scores(pod, *cluster) == upside_down(sums)


def test_a_node_that_lacks_a_key_takes_no_part() -> None:
    cluster = [*zones("a", "b"), a_node("bare"), *pods("n0", "bare", "bare")]
    pod = a_pod(labels=APP, topologySpreadConstraints=[soft()])
    assert spread_scores(pod, *cluster) == [*upside_down([math.log(4), 0]), 0]


def test_pods_of_other_namespaces_labels_and_those_leaving_do_not_count() -> None:
    leaving = a_pod("leaving", node="n1", labels=APP)

    meta = msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    cluster = [
        *zones("a", "b", "c"),
        a_pod("one", node="n0", labels=APP),
        msgspec.structs.replace(leaving, metadata=meta),
        a_pod("away", node="n1", labels=APP, namespace="other"),
        a_pod("db", node="n2", labels={"app": "db"}),
    ]
    pod = a_pod(labels=APP, topologySpreadConstraints=[soft()])
    assert spread_scores(pod, *cluster) == upside_down([math.log(5), 0, 0])


def test_pods_of_one_controller_are_spread_by_default() -> None:
    mine = [a_pod(f"m{n}", node=node, owner="rs") for n, node in enumerate(("n0", "n0", "n1"))]
    others = [a_pod(f"o{n}", node="n2", owner="other") for n in range(5)]
    cluster = [*zones("a", "a", "b"), *mine, *others]
    by_host, by_zone = math.log(3 + 2), math.log(2 + 2)
    # Tolerances of the default constraints: 3 - 1 and 5 - 1.
    sums = [2 * by_host + 3 * by_zone + 6, by_host + 3 * by_zone + 6, 6.0]
    assert spread_scores(a_pod("new", owner="rs"), *cluster) == upside_down(sums)


def test_a_node_without_a_zone_counts_by_its_name_alone_by_default() -> None:
    mine = [a_pod(f"m{n}", node=node, owner="rs") for n, node in enumerate(("n0", "bare"))]
    cluster = [*zones("a"), a_node("bare"), *mine]
    by_host, by_zone = math.log(2 + 2), math.log(2 + 2)
    sums = [by_host + 2 + by_zone + 4, by_host + 2]
    assert spread_scores(a_pod("new", owner="rs"), *cluster) == upside_down(sums)


def test_equal_nodes_score_full() -> None:
    pod = a_pod(labels=APP, topologySpreadConstraints=[soft()])
    assert spread_scores(pod, *zones("a", "b")) == [100, 100]


def reasons(pod: Pod, *objects: Any) -> dict[str, str]:
    state = a_cluster(*objects)
    affinity = checks(pod, state)
    assert affinity.can_reject
    rejections = {name: affinity.rejection(node) for name, node in state.nodes.items()}
    return {
        name: rejection.reasons[0]
        for name, rejection in rejections.items()
        if rejection is not None
    }


SKEWED = "node(s) didn't match pod topology spread constraints"


@pytest.mark.parametrize(
    ("on", "skew", "more", "full"),
    [
        ((), 1, {}, set()),
        (("n0",), 1, {}, {"n0"}),
        (("n0",), 2, {}, set()),
        (("n0", "n0"), 2, {}, {"n0"}),
        (("n0", "n1"), 1, {}, {"n0", "n1"}),
        (("n0", "n1", "n2"), 1, {}, set()),
        (("n0", "n1", "n2"), 1, {"minDomains": 3}, set()),
        (("n0", "n1", "n2"), 1, {"minDomains": 4}, {"n0", "n1", "n2"}),
    ],
)
def test_how_far_domains_may_be_apart(
    on: tuple[str, ...], skew: int, more: dict[str, Any], full: set[str]
) -> None:
    cluster = [*zones("a", "b", "c"), *pods(*on)]
    pod = a_pod(labels=APP, topologySpreadConstraints=[spread(APP, skew=skew, **more)])
    reason_list = reasons(pod, *cluster)
    assert reason_list == dict.fromkeys(full, SKEWED)


def test_a_pod_that_its_own_selector_does_not_mean_is_not_counted_in() -> None:
    cluster = [*zones("a", "b"), *pods("n0")]
    other = a_pod(labels={"app": "db"}, topologySpreadConstraints=[spread(APP)])
    assert reasons(other, *cluster) == {}


def test_node_without_the_topology_label_is_rejected_and_no_domain() -> None:
    cluster = [*zones("a", "b"), a_node("bare"), *pods("n0", "n1")]
    pod = a_pod(labels=APP, topologySpreadConstraints=[spread(APP)])
    assert reasons(pod, *cluster) == {"bare": f"{SKEWED} (missing required label)"}


@pytest.mark.parametrize(
    ("policy", "value", "full"),
    [
        ("nodeTaintsPolicy", "Ignore", {"n0"}),
        ("nodeTaintsPolicy", "Honor", set()),
        ("nodeAffinityPolicy", "Ignore", {"n0"}),
        ("nodeAffinityPolicy", "Honor", set()),
    ],
)
def test_nodes_out_of_reach_count_as_domains_or_not(
    policy: str, value: str, full: set[str]
) -> None:
    tainted = policy == "nodeTaintsPolicy"
    out = a_node("n1", labels={ZONE: "b", "no": "1"}, taints=("k:NoSchedule",) if tainted else ())
    cluster = [a_node("n0", labels={ZONE: "a", "yes": "1"}), out, *pods("n0")]
    more: dict[str, Any] = {} if tainted else {"nodeSelector": {"yes": "1"}}
    honoured: dict[str, Any] = {policy: value}
    rule = spread(APP, **honoured)
    pod = a_pod(labels=APP, topologySpreadConstraints=[rule], **more)
    assert set(reasons(pod, *cluster)) == full


def test_required_terms_hold_for_the_same_pods_together() -> None:
    both = {"podAffinity": {REQUIRED: [term({"a": "1"}), term({"b": "1"}, HOSTNAME)]}}
    apart = [a_pod("x", node="n0", labels={"a": "1"}), a_pod("y", node="n0", labels={"b": "1"})]
    one = a_pod("z", node="n1", labels={"a": "1", "b": "1"})
    near = "node(s) didn't match pod affinity rules"
    reason_list = reasons(a_pod(affinity=both), *zones("a", "b", "b"), *apart, one)
    assert reason_list == {"n0": near, "n2": near}


def test_the_first_of_a_group_may_go_anywhere_that_has_the_keys() -> None:
    together = {"podAffinity": {REQUIRED: [term(APP)]}}
    near = "node(s) didn't match pod affinity rules"
    first = a_pod(labels=APP, affinity=together)
    cluster = [*zones("a", "b"), a_node("bare")]
    assert reasons(first, *cluster) == {"bare": near}
    stranger = a_pod(labels={"app": "db"}, affinity=together)
    assert set(reasons(stranger, *cluster)) == {"n0", "n1", "bare"}
    assert set(reasons(first, *cluster, *pods("n1"))) == {"n0", "bare"}


def test_anti_affinity_holds_in_both_directions() -> None:
    apart = {"podAntiAffinity": {REQUIRED: [term(APP)]}}
    cluster = [*zones("a", "a", "b"), a_node("bare")]
    mine = reasons(a_pod("new", affinity=apart), *cluster, *pods("n0", "bare"))
    assert mine == dict.fromkeys(("n0", "n1"), "node(s) didn't match pod anti-affinity rules")
    theirs = reasons(a_pod("new", labels=APP), *cluster, a_pod("old", node="n2", affinity=apart))
    assert theirs == {"n2": "node(s) didn't satisfy existing pods anti-affinity rules"}


def test_tables_follow_changes_of_nodes_and_pods() -> None:
    apart = {"podAntiAffinity": {REQUIRED: [term(APP)]}}
    state = a_cluster(*zones("a", "b"), *pods("n0"))
    pod = a_pod("new", affinity=apart)
    affinity = checks(pod, state)

    def full() -> set[str]:
        affinity.refresh()
        return {name for name, node in state.nodes.items() if affinity.rejection(node) is not None}

    assert full() == {"n0"}
    state.set_node(a_node("n1", labels={ZONE: "a"}))
    assert full() == {"n0", "n1"}
    (old,) = (placed.pod for placed in state.nodes["n0"].pods.values())
    state.remove_pod(old)
    assert full() == set()
    state.set_pod(a_pod("again", node="n1", labels=APP))
    assert full() == {"n0", "n1"}
    state.remove_node("n1")
    assert full() == set()


def test_both_objections_are_explained() -> None:
    apart = {"podAntiAffinity": {REQUIRED: [term(APP)]}}
    state = a_cluster(*zones("a", "b"), *pods("n0"))
    pod = a_pod(labels=APP, affinity=apart, topologySpreadConstraints=[spread(APP)])
    affinity = checks(pod, state)
    assert len(affinity.rejections(state.nodes["n0"])) == 2
    assert affinity.rejections(state.nodes["n1"]) == []
