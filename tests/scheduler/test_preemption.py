from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from moorage.api.pods import Pod
from moorage.scheduler import preemption
from moorage.scheduler.cluster_state import ClusterState
from moorage.scheduler.cycle import Cycle, Unschedulable
from moorage.scheduler.preemption import Preemption
from moorage.scheduler.query import QueryCache
from tests.scheduler.objects import a_cluster, a_node, a_pod, anti_affinity

VICTIM_LEAVING = {
    "conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ]
}


def outcome_of(state: ClusterState, pod: Pod) -> Unschedulable:
    query = QueryCache().of_waiting(pod, lambda _: None)
    outcome = Cycle(state, random.Random(1)).decide(pod, query)
    assert isinstance(outcome, Unschedulable)
    return outcome


def preemption_of(state: ClusterState, pod: Pod) -> tuple[str, list[str]] | None:
    """The node to clear and its victims' names."""
    result = outcome_of(state, pod).preemption
    return None if result is None else _shown(result)


def _shown(preemption: Preemption) -> tuple[str, list[str]]:
    return preemption.node_name, [victim.pod.metadata.name for victim in preemption.victims]


def important(cpu: str = "2", **more: object) -> Pod:
    return a_pod("important", cpu=cpu, priority=100, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        # Only as many go as must, the least important first.
        (
            [
                a_pod("a", cpu="2", priority=1, node="n1"),
                a_pod("b", cpu="2", priority=2, node="n1"),
                a_pod("full", cpu="4", priority=100, node="n2"),
            ],
            ("n1", ["a"]),
        ),
        # The node whose highest victim is lowest.
        (
            [
                a_pod("a", cpu="4", priority=5, node="n1"),
                a_pod("b", cpu="4", priority=4, node="n2"),
            ],
            ("n2", ["b"]),
        ),
        # Equal in that: the lower sum, that is fewer victims here.
        (
            [
                a_pod("a", cpu="4", priority=5, node="n1"),
                a_pod("b", cpu="3", priority=5, node="n2"),
                a_pod("c", cpu="1", priority=5, node="n2"),
            ],
            ("n1", ["a"]),
        ),
        # Equal in all: the one that started last.
        (
            [
                a_pod("a", cpu="4", priority=5, node="n1", started="2026-01-01T00:00:00Z"),
                a_pod("b", cpu="4", priority=5, node="n2", started="2026-01-02T00:00:00Z"),
            ],
            ("n2", ["b"]),
        ),
        # On one node, of equals the younger goes.
        (
            [
                a_pod("a", cpu="2", priority=5, node="n1", started="2026-01-02T00:00:00Z"),
                a_pod("b", cpu="2", priority=5, node="n1", started="2026-01-01T00:00:00Z"),
                a_pod("full", cpu="4", priority=100, node="n2"),
            ],
            ("n1", ["a"]),
        ),
        (
            [
                a_pod("a", cpu="4", priority=100, node="n1"),
                a_pod("b", cpu="4", priority=100, node="n2"),
            ],
            None,
        ),
    ],
)
def test_the_cheapest_victims_are_chosen(
    others: list[Pod], expected: tuple[str, list[str]] | None
) -> None:
    pod = important(cpu="2" if expected and expected[1] == ["a"] else "4")
    assert preemption_of(a_cluster(a_node("n1"), a_node("n2"), *others), pod) == expected


def test_a_successful_preemption_adds_no_conclusion_to_the_message() -> None:
    state = a_cluster(a_node("n1", cpu="2"), a_pod("low", cpu="2", node="n1"))
    assert outcome_of(state, important()).message == (
        "0/1 nodes are available: 1 Insufficient cpu."
    )


def test_nodes_that_would_stay_closed_are_not_cleared() -> None:
    state = a_cluster(
        a_node("tainted", cpu="2", taints=("x:NoSchedule",)),
        a_node("small", cpu="1"),
        a_pod("low", cpu="1", node="small"),
        a_pod("low2", cpu="1", node="tainted"),
    )
    outcome = outcome_of(state, important())
    assert outcome.preemption is None
    assert outcome.message.endswith(
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_objections_that_remain_without_the_victims_are_reported() -> None:
    state = a_cluster(
        a_node("n1", cpu="2"),
        a_pod("low", cpu="500m", node="n1"),
        a_pod("high", cpu="1", node="n1", priority=1000),
    )
    assert outcome_of(state, important()).message.endswith(
        "preemption: 0/1 nodes are available: 1 Insufficient cpu."
    )


def test_a_pod_that_is_kept_away_by_anti_affinity_can_be_preempted() -> None:
    rule = anti_affinity({"app": "web"})
    state = a_cluster(
        a_node("n1"),
        a_pod("low", labels={"app": "web"}, node="n1"),
        a_pod("bystander", node="n1"),
    )
    pod = important(cpu="1", affinity=rule, labels={"app": "db"})
    assert preemption_of(state, pod) == ("n1", ["low"])
    # Trying leaves no trace: the same question has the same answer.
    assert preemption_of(state, pod) == ("n1", ["low"])


def test_no_other_pod_is_preempted_while_a_victim_is_leaving() -> None:
    leaving = a_pod("leaving", cpu="1", node="n1", status=VICTIM_LEAVING)
    leaving = _deleted(leaving)
    state = a_cluster(a_node("n1", cpu="2"), leaving, a_pod("low", cpu="1", node="n1"))
    outcome = outcome_of(state, important(nominated="n1"))
    assert outcome.preemption is None
    assert outcome.message.endswith(
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    assert not outcome.ends_nomination


def test_a_nomination_that_leads_nowhere_ends() -> None:
    state = a_cluster(a_node("n1", cpu="1"))
    assert outcome_of(state, important(nominated="n1")).ends_nomination


def test_room_for_a_more_important_nominated_pod_is_not_given_away() -> None:
    state = a_cluster(a_node("n1", cpu="2"), a_pod("low", cpu="2", node="n1"))
    boss = a_pod("boss", cpu="2", priority=1000)
    state.nominate(boss, QueryCache().of_waiting(boss, lambda _: None), "n1")
    assert outcome_of(state, important()).preemption is None


@pytest.mark.parametrize("priority", [-5, 0, 50])
def test_fewer_victims_are_cheaper_at_any_priority(priority: int) -> None:
    state = a_cluster(
        a_node("n1", cpu="2"),
        a_node("n2", cpu="2"),
        *(a_pod(f"small{n}", cpu="1", node="n1", priority=priority) for n in range(2)),
        a_pod("large", cpu="2", node="n2", priority=priority),
    )
    assert preemption_of(state, important()) == ("n2", ["large"])


@pytest.mark.parametrize(("nodes", "tried"), [(1, 1), (120, 100), (1100, 110)])
def test_a_tenth_of_the_nodes_is_tried_and_a_hundred_at_least(nodes: int, tried: int) -> None:
    node, low = a_node("n"), a_pod("low", cpu="4", node="n")
    objects: list[Any] = []
    for number in range(nodes):
        meta = msgspec.structs.replace(node.metadata, name=f"n{number}")
        objects.append(msgspec.structs.replace(node, metadata=meta))
        spec = msgspec.structs.replace(low.spec, node_name=f"n{number}")
        own = msgspec.structs.replace(low.metadata, name=f"low{number}", uid=f"u{number}")
        objects.append(msgspec.structs.replace(low, metadata=own, spec=spec))
    state = a_cluster(*objects)
    pod = important(cpu="2")
    query = QueryCache().of_waiting(pod, lambda _: None)
    result, failed = preemption.dry_run(
        pod, query, state, None, list(state.nodes), random.Random(1)
    )
    assert (len(result), failed) == (tried, [])
    assert len({candidate.node_name for candidate in result}) == tried


def test_a_preemption_begins_at_any_node() -> None:
    names = [f"n{number}" for number in range(300)]
    state = a_cluster(
        *(a_node(name, cpu="1") for name in names),
        *(a_pod(f"low-{name}", cpu="1", node=name) for name in names),
    )
    pod = important(cpu="1")
    query = QueryCache().of_waiting(pod, lambda _: None)
    firsts = {
        preemption.dry_run(pod, query, state, None, names, random.Random(seed))[0][0].node_name
        for seed in range(5)
    }
    assert len(firsts) > 1
    last = preemption.dry_run(pod, query, state, None, names, FixedRandom(299))[0]
    assert [candidate.node_name for candidate in last[:3]] == ["n299", "n0", "n1"]


class FixedRandom(random.Random):
    """Gives the number it was made with."""

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self._number = number

    def randrange(self, *arguments: Any) -> int:
        assert self._number in range(*arguments)
        return self._number


def _deleted(pod: Pod) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(pod, metadata=meta)


def test_a_pod_without_a_priority_waits_for_a_leaving_victim_too() -> None:
    """No priority is priority 0, and its victims have less than that."""
    leaving = _deleted(a_pod("leaving", cpu="2", node="n1", priority=-5, status=VICTIM_LEAVING))
    state = a_cluster(a_node("n1", cpu="2"), a_node("n2", cpu="2"), leaving,
                      a_pod("weak", cpu="2", node="n2", priority=-5))  # fmt: skip
    waiting = a_pod("p", cpu="2", nominated="n1")
    assert preemption_of(state, waiting) is None
    assert preemption_of(state, a_pod("other", cpu="2")) is not None


def test_more_victims_are_cheaper_when_they_matter_far_less() -> None:
    """The sum of priorities counts before their number. Source: kube-scheduler's pickOneNode."""
    least = -(2**31) + 1
    state = a_cluster(
        a_node("n1", cpu="2"), a_node("n2", cpu="2"),
        *(a_pod(f"a{i}", cpu="1", node="n1", priority=10) for i in range(2)),
        a_pod("b0", cpu="1", node="n2", priority=10),
        *(a_pod(f"b{i}", cpu="500m", node="n2", priority=least) for i in (1, 2)),
    )  # fmt: skip
    result = preemption_of(state, important())
    assert result is not None
    assert (result[0], len(result[1])) == ("n2", 3)


@pytest.mark.parametrize(("priority", "is_waited_for"), [(9, True), (10, False), (11, False)])
def test_only_a_weaker_pod_that_leaves_is_waited_for(priority: int, is_waited_for: bool) -> None:
    leaving = a_pod("leaving", cpu="1", node="n1", priority=priority, status=VICTIM_LEAVING)
    state = a_cluster(a_node("n1", cpu="2"), _deleted(leaving),
                      a_pod("low", cpu="1", node="n1", priority=1))  # fmt: skip
    outcome = outcome_of(state, a_pod("p", cpu="1", priority=10, nominated="n1"))
    assert (outcome.preemption is None) == is_waited_for
