"""What keeps a rollout from moving anything."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.api.meta import Condition, ObjectMeta
from moorage.api.runtime_group import RuntimeClass, Scheduling
from moorage.api.runtime_rollouts import (
    ACCEPTED,
    BLOCKED,
    RuntimeRollout,
    RuntimeRolloutSpec,
    RuntimeRolloutStatus,
)
from moorage.runtimeclass.rollouts import NodeFacts, find_obstacle, find_return_obstacle

_NODES = (
    NodeFacts("n1", {"zone": "a"}, frozenset({"runc", "gvisor"})),
    NodeFacts("n2", {"zone": "b"}, frozenset({"runc"})),
)


def _class(name: str, handler: str, **selector: str) -> RuntimeClass:
    scheduling = Scheduling(node_selector=selector) if selector else None
    return RuntimeClass(metadata=ObjectMeta(name=name), handler=handler, scheduling=scheduling)


def _rollout(
    from_: str, to: str, name: str = "r", created: int = 1, *, phase: str = "",
    has_begun: bool = False, **spec: Any,
) -> RuntimeRollout:  # fmt: skip
    return RuntimeRollout(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", creation_timestamp=f"2026-01-01T00:00:0{created}Z"
        ),
        spec=RuntimeRolloutSpec(from_=from_, to=to, **spec),
        status=RuntimeRolloutStatus(
            phase=phase, started_at="2026-01-01T00:00:00Z" if has_begun else None
        ),
    )


_CLASSES = {
    "old": _class("old", "runc"),
    "new": _class("new", "gvisor"),
    "far": _class("far", "gvisor", zone="b"),
    "none": _class("none", "kata"),
}


@pytest.mark.parametrize(
    ("to", "reason", "message"),
    [
        ("new", "", ""),
        ("missing", "ClassMissing", "RuntimeClass missing does not exist; create it"),
        ("none", "HandlerMissing", "no node of the cluster has the handler kata"),
        ("far", "HandlerMissing", "no node that the class selects has the handler gvisor"),
    ],
)
def test_the_target_class_needs_a_node_that_can_run_it(to: str, reason: str, message: str) -> None:
    obstacle = find_obstacle(_rollout("old", to), (), _CLASSES, _NODES)
    assert (obstacle.reason if obstacle else "") == reason
    assert obstacle is None or message in obstacle.message


def test_a_node_that_reports_no_handlers_may_have_it_and_no_node_has_none() -> None:
    assert find_obstacle(_rollout("old", "none"), (), _CLASSES, (NodeFacts("n"),)) is None
    obstacle = find_obstacle(_rollout("old", "new"), (), _CLASSES, ())
    assert obstacle is not None
    assert obstacle.reason == "HandlerMissing"


@pytest.mark.parametrize(
    ("other", "is_refused"),
    [
        (_rollout("old", "far", "x", 0), True),
        (_rollout("old", "far", "x", 2), False),
        (_rollout("old", "far", "x", 2, has_begun=True), True),
        (_rollout("old", "far", "a", 1), True),
        (_rollout("new", "old", "x", 0), True),
        (_rollout("new", "far", "x", 0), True),
        (_rollout("far", "old", "x", 0), True),
        (_rollout("far", "new", "x", 0), False),
        (_rollout("old", "far", "x", 0, phase="Completed"), False),
        (_rollout("old", "far", "x", 0, phase="RolledBack"), False),
        (_rollout("old", "far", "x", 0, phase="Stopped"), True),
    ],
)
def test_rollouts_that_overlap_go_one_after_the_other(
    other: RuntimeRollout, is_refused: bool
) -> None:
    rollout = _rollout("old", "new")
    obstacle = find_obstacle(rollout, (rollout, other), _CLASSES, _NODES)
    assert (obstacle is not None) == is_refused
    assert obstacle is None or obstacle.reason == "RolloutOverlaps"
    back = find_obstacle(other, (rollout,), _CLASSES, _NODES)
    assert not is_refused or back is None or back.reason != "RolloutOverlaps"


def test_a_faulty_selector_is_named() -> None:
    expression = {"key": "a", "operator": "Near", "values": []}
    rollout = _rollout("old", "new", workload_selector={"matchExpressions": [expression]})
    obstacle = find_obstacle(rollout, (), _CLASSES, _NODES)
    assert obstacle is not None
    assert obstacle.message.startswith("spec.workloadSelector: ")


def test_a_return_needs_the_class_of_before() -> None:
    rollout = _rollout("old", "new")
    assert find_return_obstacle(rollout, _CLASSES) is None
    rollout = msgspec.structs.replace(rollout, spec=RuntimeRolloutSpec(from_="gone", to="new"))
    obstacle = find_return_obstacle(rollout, _CLASSES)
    assert obstacle is not None
    assert "RuntimeClass gone does not exist" in obstacle.message


@pytest.mark.parametrize(
    ("reason", "has_begun", "blocks"),
    [
        ("ClassMissing", False, False),
        ("ClassMissing", True, True),
        ("RolloutOverlaps", False, True),
    ],
)
def test_a_rollout_that_cannot_begin_lets_others_go_first(
    reason: str, has_begun: bool, blocks: bool
) -> None:
    other = _rollout("old", "missing", "other", phase=BLOCKED, has_begun=has_begun)
    condition = Condition(type=ACCEPTED, status="False", reason=reason)
    status = msgspec.structs.replace(other.status, conditions=(condition,))
    stuck = msgspec.structs.replace(other, status=status)
    obstacle = find_obstacle(_rollout("old", "new", created=2), [stuck], _CLASSES, _NODES)
    assert (obstacle is not None) == blocks
