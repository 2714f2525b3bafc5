from __future__ import annotations

import pytest

from moorage.api.nodes import Taint
from moorage.api.pods import Toleration
from moorage.controllers.nodes.conditions import unknown_conditions
from moorage.controllers.nodes.eviction import evicting_key, seconds_borne, taints_after
from moorage.controllers.nodes.lifecycle import Pace, ZoneState, outage_of
from moorage.controllers.objects import Node
from moorage.controllers.options import ControllerOptions
from tests.controllers.objects import NOW, ago, node

PREFIX = "node.kubernetes.io/"
OPTIONS = ControllerOptions(cluster_ca="")


def shown(taints: tuple[Taint, ...]) -> set[str]:
    return {f"{taint.key.removeprefix(PREFIX)}:{taint.effect}" for taint in taints}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (node("n"), set()),
        (node("n", "False"), {"not-ready:NoSchedule"}),
        (node("n", "Unknown"), {"unreachable:NoSchedule"}),
        (node("n", is_cordoned=True), {"unschedulable:NoSchedule"}),
        (node("n", MemoryPressure="True"), {"memory-pressure:NoSchedule"}),
        (node("n", DiskPressure="True", PIDPressure="False"), {"disk-pressure:NoSchedule"}),
        (node("n", PIDPressure="True"), {"pid-pressure:NoSchedule"}),
        (node("n", NetworkUnavailable="True"), {"network-unavailable:NoSchedule"}),
        (node("n", MemoryPressure="Unknown"), set()),
    ],
)
def test_conditions_make_taints(of: Node, expected: set[str]) -> None:
    assert shown(taints_after(of, None, NOW)) == expected


def test_a_lost_node_changes_its_evicting_taint_with_its_state() -> None:
    lost = node("n", "Unknown", taints=(Taint(key=f"{PREFIX}not-ready", effect="NoExecute"),))
    after = taints_after(lost, evicting_key("Unknown"), NOW)
    assert shown(after) == {"unreachable:NoSchedule", "unreachable:NoExecute"}
    assert {taint.time_added for taint in after} == {ago(0)}


def test_other_peoples_taints_and_fitting_ones_stay_untouched() -> None:
    mine = Taint(key="mine", effect="NoExecute", value="x")
    fitting = Taint(key=f"{PREFIX}not-ready", effect="NoSchedule", time_added=ago(99))
    taints = (mine, fitting)
    assert taints_after(node("n", "False", taints=taints), None, NOW) == taints
    assert taints_after(node("n", taints=taints), None, NOW) == (mine,)


def test_silence_makes_the_reported_conditions_unknown_and_no_others() -> None:
    silent = node("n", "True", MemoryPressure="Unknown", NetworkUnavailable="False")
    by_type = {condition.type: condition for condition in unknown_conditions(silent, NOW)}
    assert set(by_type) == {"Ready", "DiskPressure", "PIDPressure"}
    ready, never = by_type["Ready"], by_type["DiskPressure"]
    assert (ready.reason, ready.message) == (
        "NodeStatusUnknown",
        "Kubelet stopped posting node status.",
    )
    assert (ready.last_heartbeat_time, ready.last_transition_time) == (ago(60), ago(0))
    assert (never.reason, never.message) == (
        "NodeStatusNeverUpdated",
        "Kubelet never posted node status.",
    )
    assert never.last_heartbeat_time == ago(1000)


UNREACHABLE = Taint(key=f"{PREFIX}unreachable", effect="NoExecute")
MINE = Taint(key="mine", value="x", effect="NoExecute")


def bears(key: str, seconds: int | None = None) -> Toleration:
    return Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=seconds)


@pytest.mark.parametrize(
    ("taints", "tolerations", "seconds"),
    [
        ([], [], None),
        ([MINE], [], 0),
        ([MINE], [bears("mine")], None),
        ([MINE], [bears("mine", 30)], 30),
        ([MINE], [bears("mine", -1)], 0),
        ([MINE, UNREACHABLE], [bears("mine", 30)], 0),
        ([MINE, UNREACHABLE], [bears("mine", 30), bears(UNREACHABLE.key, 300)], 30),
        ([MINE, UNREACHABLE], [bears("mine"), bears(UNREACHABLE.key, 300)], 300),
        ([MINE], [Toleration(operator="Exists")], None),
    ],
)
def test_how_long_a_pod_stays(
    taints: list[Taint], tolerations: list[Toleration], seconds: float | None
) -> None:
    assert seconds_borne(taints, tolerations) == seconds


def zone(name: str, ready: int, lost: int) -> list[Node]:
    labels = {"topology.kubernetes.io/zone": name}
    return [
        *(node(f"{name}{i}", labels=labels) for i in range(ready)),
        *(node(f"{name}-{i}", "Unknown", labels=labels) for i in range(lost)),
    ]


@pytest.mark.parametrize(
    ("ready", "lost", "state"),
    [
        (3, 0, ZoneState.NORMAL),
        (1, 2, ZoneState.NORMAL),
        (2, 3, ZoneState.PARTIAL),
        (5, 4, ZoneState.NORMAL),
        (0, 1, ZoneState.FULL),
    ],
)
def test_zone_states(ready: int, lost: int, state: ZoneState) -> None:
    assert list(outage_of(zone("a", ready, lost), 0.55).states.values()) == [state]


def test_evictions_slow_down_in_a_partly_lost_zone_and_stop_when_all_is_lost() -> None:
    healthy = outage_of([*zone("a", 0, 2), *zone("b", 2, 0)], 0.55)
    lost, _ = healthy.states
    assert healthy.evictions_per_s(lost, OPTIONS) == 0.1
    small, large = outage_of(zone("a", 10, 30), 0.55), outage_of(zone("a", 20, 40), 0.55)
    (key,) = small.states
    assert small.evictions_per_s(key, OPTIONS) == 0
    assert large.evictions_per_s(key, OPTIONS) == 0.01
    total = outage_of([*zone("a", 0, 2), *zone("b", 0, 1)], 0.55)
    assert total.is_total
    assert total.evictions_per_s(key, OPTIONS) == 0


def test_turns_are_taken_one_after_the_other() -> None:
    pace = Pace()
    assert pace.wait_s("a", 0.1, 100.0) == 0
    assert pace.wait_s("a", 0.1, 103.0) == 7
    assert pace.wait_s("b", 0.1, 103.0) == 0
    assert pace.wait_s("a", 0.1, 110.0) == 0
    assert pace.wait_s("a", 0, 200.0) is None
