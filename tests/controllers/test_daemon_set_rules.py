"""Rules of DaemonSets: which nodes get pods, what one looks like, updates, pauses, the status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.meta import ObjectMeta, Raw
from moorage.api.nodes import Taint
from moorage.api.pods import NodeSelectorRequirement, Toleration
from moorage.api.runtime_group import RuntimeClass, Scheduling
from moorage.api.workloads import (
    DaemonSet,
    DaemonSetSpec,
    DaemonSetStatus,
    DaemonSetUpdateStrategy,
    RollingUpdateDaemonSet,
)
from moorage.controllers.daemonsets.controller import observed_status
from moorage.controllers.daemonsets.placement import Fit, Placement, daemon_tolerations
from moorage.controllers.daemonsets.planning import (
    HASH,
    FailedPods,
    Plan,
    View,
    by_node,
    daemon_pod,
    is_updated,
    max_surge,
    max_unavailable,
    placed,
    rolled,
    target_node,
)
from moorage.controllers.objects import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeStatus,
    Pod,
    PodSpec,
    RuntimeHandler,
)
from tests.clocks import FakeClock
from tests.controllers import objects
from tests.controllers.objects import NOW, TEMPLATE

GETS, KEEPS, LEAVES = Fit(True, True), Fit(False, True), Fit(False, False)


def node(name: str = "n1", *handlers: str, taint: Taint | None = None, **labels: str) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=objects.node(name, taints=(taint,) if taint else ()).spec,
        status=NodeStatus(runtime_handlers=tuple(RuntimeHandler(name=one) for one in handlers)),
    )


def affinity(operator: str, *values: str) -> Raw:
    term = {"matchExpressions": [{"key": "disk", "operator": operator, "values": list(values)}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


KATA = RuntimeClass(
    handler="kata",
    scheduling=Scheduling(
        node_selector={"kata": "yes"},
        tolerations=(Toleration(key="kata", operator="Exists"),),
    ),
)
NO_SCHEDULE, NO_EXECUTE = Taint(key="a", effect="NoSchedule"), Taint(key="a", effect="NoExecute")
KATA_TAINT = Taint(key="kata", effect="NoSchedule")


@pytest.mark.parametrize(
    ("spec", "runtime_class", "on", "expected"),
    [
        ({}, None, node(), GETS),
        ({"nodeName": "n1"}, None, node(), GETS),
        ({"nodeName": "n2"}, None, node(), LEAVES),
        ({"nodeSelector": {"disk": "ssd"}}, None, node(disk="ssd"), GETS),
        ({"nodeSelector": {"disk": "ssd"}}, None, node(), LEAVES),
        ({"affinity": affinity("In", "ssd")}, None, node(disk="ssd"), GETS),
        ({"affinity": affinity("In", "ssd")}, None, node(disk="hdd"), LEAVES),
        ({}, None, node(taint=NO_SCHEDULE), KEEPS),
        ({}, None, node(taint=NO_EXECUTE), LEAVES),
        ({"tolerations": [{"operator": "Exists"}]}, None, node(taint=NO_EXECUTE), GETS),
        ({}, None, node(taint=Taint(key="a", effect="PreferNoSchedule")), GETS),
        ({}, None, node(taint=Taint(key="node.kubernetes.io/unschedulable",
                                    effect="NoSchedule")), GETS),
        ({}, None, node(taint=Taint(key="node.kubernetes.io/not-ready",
                                    effect="NoExecute")), GETS),
        ({}, None, node(taint=Taint(key="node.kubernetes.io/network-unavailable",
                                    effect="NoSchedule")), KEEPS),
        ({"hostNetwork": True}, None, node(taint=Taint(key="node.kubernetes.io/network-unavailable",
                                                       effect="NoSchedule")), GETS),
        # The class's selector, tolerations and handler.
        ({}, KATA, node("n1", "runc", "kata", kata="yes"), GETS),
        ({}, KATA, node("n1", "runc", "kata"), LEAVES),
        ({}, KATA, node("n1", "runc", kata="yes"), KEEPS),
        ({}, KATA, node("n1", kata="yes"), GETS),
        ({}, KATA, node("n1", "kata", taint=KATA_TAINT, kata="yes"), GETS),
        ({}, None, node("n1", "kata", taint=KATA_TAINT, kata="yes"), KEEPS),
        ({}, RuntimeClass(handler="kata"), node("n1", "kata"), GETS),
    ],
)  # fmt: skip
def test_nodes_get_and_keep_pods(
    spec: Raw, runtime_class: RuntimeClass | None, on: Node, expected: Fit
) -> None:
    assert Placement({"spec": spec}, runtime_class).fit(on) == expected


def test_daemon_pods_tolerate_the_conditions_of_nodes() -> None:
    own = {"key": "x", "operator": "Exists"}
    limited = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
               "tolerationSeconds": 30}  # fmt: skip
    tolerations = daemon_tolerations({"tolerations": [own, limited]})
    assert tolerations[0] == own
    assert [(one["key"], one.get("effect")) for one in tolerations[1:]] == [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ]
    assert not any("tolerationSeconds" in one for one in tolerations)


def daemon_set(
    *,
    surge: int | str | None = None,
    unavailable: int | str | None = None,
    strategy: str = "RollingUpdate",
    min_ready_s: int = 0,
    template: Raw = TEMPLATE,
    annotations: dict[str, str] | None = None,
) -> DaemonSet:
    rolling = RollingUpdateDaemonSet(max_surge=surge, max_unavailable=unavailable)
    return DaemonSet(
        metadata=ObjectMeta(
            name="agent", namespace="default", uid="set", generation=3,
            annotations=annotations or {},
        ),
        spec=DaemonSetSpec(
            selector={"matchLabels": {"app": "web"}},
            template=template,
            update_strategy=DaemonSetUpdateStrategy(type=strategy, rolling_update=rolling),
            min_ready_seconds=min_ready_s,
        ),
        status=DaemonSetStatus(observed_generation=2),
    )  # fmt: skip


def test_a_pod_is_bound_to_its_node_by_affinity() -> None:
    spec: Raw = {"containers": [{"name": "c"}], "affinity": affinity("In", "ssd")}
    template: Raw = {**TEMPLATE, "spec": spec}
    annotations = {"deprecated.daemonset.template.generation": "4"}
    pod = daemon_pod(daemon_set(template=template, annotations=annotations), "n7", "abc")
    assert pod["metadata"]["labels"] == {
        "app": "web", "controller-revision-hash": "abc", "pod-template-generation": "4",
    }  # fmt: skip
    assert pod["metadata"]["generateName"] == "agent-"
    required = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    field = {"key": "metadata.name", "operator": "In", "values": ["n7"]}
    assert required == {"nodeSelectorTerms": [{"matchFields": [field]}]}
    assert template["spec"]["affinity"] == affinity("In", "ssd")
    decoded = msgspec.convert(pod, Pod)
    assert target_node(decoded) == "n7"


def unbound(*values: str, operator: str = "In", key: str = "metadata.name") -> Pod:
    requirement = NodeSelectorRequirement(key=key, operator=operator, values=values)
    term = NodeSelectorTerm(match_fields=(requirement,))
    required = NodeSelector(node_selector_terms=(term,))
    bound = NodeAffinity(required_during_scheduling_ignored_during_execution=required)
    return Pod(
        metadata=ObjectMeta(name="p", uid="p"), spec=PodSpec(affinity=Affinity(node_affinity=bound))
    )


def test_the_node_of_a_pod_is_known_before_it_is_bound() -> None:
    assert target_node(unbound("n1")) == "n1"
    assert target_node(objects.pod("p", node="n2")) == "n2"
    assert target_node(unbound("n1", "n2")) is None
    assert target_node(unbound("n1", operator="NotIn")) is None
    assert target_node(unbound("n1", key="other")) is None
    assert target_node(Pod()) is None


def test_pods_are_updated_by_hash_or_by_the_deprecated_generation() -> None:
    annotations = {"deprecated.daemonset.template.generation": "4"}
    pod = objects.pod("p", labels={"pod-template-generation": "4"})
    assert is_updated(daemon_set(annotations=annotations), pod, "abc")
    assert not is_updated(daemon_set(), pod, "abc")


def pod(name: str, on: str, state: str = "ok", revision: str = "new", age: float = 100) -> Pod:
    """A pod that is ok, unready, ended, leaving or unbound, or gone (ended and leaving)."""
    return objects.pod(
        name,
        node=on if state != "unbound" else "",
        phase="Failed" if state in ("ended", "gone") else "Running",
        ready_for=3600 if state in ("ok", "leaving") else None,
        is_deleting=state in ("leaving", "gone"),
        labels={"app": "web", HASH: revision},
        age=age,
    )


def view(wanted: DaemonSet) -> View:
    return View(wanted, "new", NOW)


def names(plan: Plan) -> tuple[list[str], list[str], list[str]]:
    return (
        list(plan.nodes),
        [one.metadata.name for one in plan.deletions],
        [one.metadata.name for one in plan.ended],
    )


PLAIN, SURGING = daemon_set(), daemon_set(surge=1, unavailable=0)
PLACED: dict[str, tuple[DaemonSet, list[Pod], Fit, tuple[list[str], list[str], list[str]]]] = {
    "a node without a pod gets one": (PLAIN, [], GETS, (["a"], [], [])),
    "a node that gets none": (PLAIN, [], KEEPS, ([], [], [])),
    "a pod that may stay": (PLAIN, [pod("p", "a")], KEEPS, ([], [], [])),
    "a pod that may not": (PLAIN, [pod("p", "a")], LEAVES, ([], ["p"], [])),
    "one on its way out": (PLAIN, [pod("p", "a", "leaving")], LEAVES, ([], [], [])),
    "a leaving pod holds the place": (PLAIN, [pod("p", "a", "leaving")], GETS, ([], [], [])),
    "a pod that is as good as gone": (PLAIN, [pod("p", "a", "gone")], GETS, (["a"], [], [])),
    "an ended pod": (PLAIN, [pod("p", "a", "ended")], GETS, ([], [], ["p"])),
    "the younger of two": (
        PLAIN, [pod("young", "a", age=1), pod("old", "a", age=9)], GETS, ([], ["young"], []),
    ),
    "with surge, a leaving pod holds nothing": (
        SURGING, [pod("p", "a", "leaving")], GETS, (["a"], [], []),
    ),
    "with surge, old and new while the new is not ready": (
        SURGING, [pod("o", "a", revision="old"), pod("n", "a", "unready")], GETS, ([], [], []),
    ),
    "with surge, the old goes when the new is ready": (
        SURGING, [pod("o", "a", revision="old"), pod("n", "a")], GETS, ([], ["o"], []),
    ),
    "with surge, the old goes when it is not ready": (
        SURGING,
        [pod("o", "a", "unready", revision="old"), pod("n", "a", "unready")],
        GETS,
        ([], ["o"], []),
    ),
    "with surge, second ones of a sort go": (
        SURGING, [pod("n", "a", age=9), pod("m", "a", age=1)], GETS, ([], ["m"], []),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACED)
def test_each_node_is_brought_to_one_pod(case: str) -> None:
    wanted, pods, fit, expected = PLACED[case]
    assert names(placed(view(wanted), {"a": fit}, by_node(pods))) == expected


def test_an_unbound_pod_of_a_lost_node_goes() -> None:
    assert names(placed(view(PLAIN), {}, by_node([unbound("gone")]))) == ([], ["p"], [])
    assert names(placed(view(PLAIN), {}, by_node([pod("p", "gone")]))) == ([], [], [])


def old(on: str, state: str = "ok") -> Pod:
    return pod(f"old-{on}", on, state, "old")


def new(on: str, state: str = "ok") -> Pod:
    return pod(f"new-{on}", on, state)


ROLLED: dict[str, tuple[DaemonSet, list[Pod], tuple[list[str], list[str]]]] = {
    "one at a time": (PLAIN, [old("a"), old("b"), old("c")], ([], ["old-a"])),
    "the next when the first is available": (
        PLAIN, [new("a"), old("b"), old("c")], ([], ["old-b"]),
    ),
    "not before": (PLAIN, [new("a", "unready"), old("b"), old("c")], ([], [])),
    "an empty node counts": (PLAIN, [old("b"), old("c")], ([], [])),
    "useless old pods go at once": (
        PLAIN, [new("a", "unready"), old("b", "unready"), old("c")], ([], ["old-b"]),
    ),
    "several": (daemon_set(unavailable=2), [old("a"), old("b"), old("c")],
                ([], ["old-a", "old-b"])),
    "by share, rounded up": (daemon_set(unavailable="34%"), [old("a"), old("b"), old("c")],
                             ([], ["old-a", "old-b"])),
    "never on deletion": (daemon_set(strategy="OnDelete"), [old("a"), old("b"), old("c")],
                          ([], [])),
    "all new": (PLAIN, [new("a"), new("b"), new("c")], ([], [])),
    "surge onto one": (SURGING, [old("a"), old("b"), old("c")], (["a"], [])),
    "surge waits": (SURGING, [old("a"), new("a", "unready"), old("b"), old("c")], ([], [])),
    "surge goes on": (SURGING, [old("a"), new("a"), old("b"), old("c")], (["b"], ["old-a"])),
    "useless old pods do not count as surge": (
        SURGING, [old("a", "unready"), old("b"), old("c")], (["a", "b"], []),
    ),
    "a pod on a node that gets none goes when others are available": (
        SURGING, [new("a"), new("b"), new("c"), old("d")], ([], ["old-d"]),
    ),
    "and stays until then": (
        SURGING, [new("a"), new("b"), new("c", "unready"), old("d")], ([], []),
    ),
    "a useless one goes": (
        SURGING, [new("a"), new("b"), new("c", "unready"), old("d", "unready")], ([], ["old-d"]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ROLLED)
def test_updates(case: str) -> None:
    wanted, pods, expected = ROLLED[case]
    fits = {"a": GETS, "b": GETS, "c": GETS, "d": KEEPS}
    assert names(rolled(view(wanted), fits, by_node(pods)))[:2] == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (PLAIN, (0, 1)),
        (daemon_set(strategy=""), (0, 1)),
        (daemon_set(unavailable="10%"), (0, 1)),
        (daemon_set(unavailable=0, surge=0), (0, 1)),
        (SURGING, (1, 0)),
        (daemon_set(surge="30%", unavailable=0), (3, 0)),
        (daemon_set(strategy="OnDelete", surge=1), (0, 0)),
    ],
)
def test_bounds_of_an_update(wanted: DaemonSet, expected: tuple[int, int]) -> None:
    assert (max_surge(wanted, 10), max_unavailable(wanted, 10)) == expected


def test_pauses_double_and_are_forgotten() -> None:
    clock = FakeClock()
    failed, key = FailedPods(clock), ("u", 1, "n")
    assert failed.seconds_left(key) == 0
    pauses: list[float] = []
    for _ in range(12):
        failed.deleted(key)
        pauses.append(failed.seconds_left(key))
        clock.advance(pauses[-1])
        assert failed.seconds_left(key) == 0
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == 900
    clock.advance(1801)
    failed.deleted(key)
    assert failed.seconds_left(key) == 1
    assert failed.seconds_left(("u", 2, "n")) == 0


def test_the_status_counts_nodes() -> None:
    fits = {"a": GETS, "b": GETS, "c": GETS, "d": KEEPS}
    pods = by_node([new("a"), old("b"), new("d"), pod("second", "a", "unready", age=1)])
    status = observed_status(view(PLAIN), fits, pods, 0, is_handled=True)
    assert status == DaemonSetStatus(
        current_number_scheduled=2, number_misscheduled=1, desired_number_scheduled=3,
        number_ready=2, observed_generation=3, updated_number_scheduled=1, number_available=2,
        number_unavailable=1,
    )  # fmt: skip
    assert observed_status(view(PLAIN), fits, pods, 0, is_handled=False).observed_generation == 2


def test_new_pods_are_available_after_their_time() -> None:
    wanted = daemon_set(min_ready_s=3601)
    status: Any = observed_status(
        view(wanted), {"a": GETS}, by_node([new("a")]), 0, is_handled=True
    )
    assert (status.number_ready, status.number_available, status.number_unavailable) == (1, 0, 1)
