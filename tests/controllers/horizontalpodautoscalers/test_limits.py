"""What becomes of a proposal: stabilization, policies, bounds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.autoscaling import Behavior
from moorage.controllers.horizontalpodautoscalers.limits import (
    Bounds,
    History,
    Moment,
    limit,
    limit_by_policies,
    recommended,
    scaled,
    stabilize,
    stabilize_down,
)

NOW = 1000.0
UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
DOWN = {
    "stabilizationWindowSeconds": 300,
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


def behavior(up: dict[str, Any] | None = None, down: dict[str, Any] | None = None) -> Behavior:
    return msgspec.convert({"scaleUp": UP | (up or {}), "scaleDown": DOWN | (down or {})}, Behavior)


def policies(*listed: tuple[str, int, int]) -> dict[str, Any]:
    return {
        "policies": [
            {"type": type_, "value": value, "periodSeconds": period}
            for type_, value, period in listed
        ]
    }


def past(*moments: tuple[int, float]) -> tuple[Moment, ...]:
    """Return moments of so many seconds ago."""
    return tuple(Moment(count, NOW - ago_s) for count, ago_s in moments)


@pytest.mark.parametrize(
    ("current", "desired", "bounds", "replicas", "reason"),
    [
        (5, 7, (1, 10), 7, "DesiredWithinRange"),
        (5, 11, (1, 10), 10, "TooManyReplicas"),
        (5, 11, (1, 20), 10, "ScaleUpLimit"),
        (5, 10, (1, 20), 10, "DesiredWithinRange"),
        (1, 9, (1, 20), 4, "ScaleUpLimit"),
        (1, 9, (1, 4), 4, "TooManyReplicas"),
        (5, 0, (2, 20), 2, "TooFewReplicas"),
    ],
)
def test_without_a_behavior_pods_at_most_double(
    current: int, desired: int, bounds: tuple[int, int], replicas: int, reason: str
) -> None:
    decision = limit(current, desired, Bounds(*bounds))
    assert (decision.replicas, decision.reason) == (replicas, reason)


@pytest.mark.parametrize(
    ("recommendations", "desired", "replicas"),
    [
        (past(), 3, 3),
        (past((5, 300), (4, 10)), 3, 5),
        (past((5, 301), (4, 10)), 3, 4),
        (past((2, 10)), 3, 3),
    ],
)
def test_without_a_behavior_the_greatest_recommendation_of_the_window_holds(
    recommendations: tuple[Moment, ...], desired: int, replicas: int
) -> None:
    history = History(recommendations)
    assert stabilize_down(history, desired, 300, NOW).replicas == replicas


@pytest.mark.parametrize(
    ("windows", "recommendations", "current", "desired", "replicas", "reason"),
    [
        # Up: the least of the window, but never down because of it.
        ((60, 0), past((3, 50)), 2, 5, 3, "ScaleUpStabilized"),
        ((60, 0), past((3, 60)), 2, 5, 5, "ScaleUpStabilized"),
        ((60, 0), past((1, 50)), 2, 5, 2, "ScaleUpStabilized"),
        ((0, 0), past((1, 0)), 2, 5, 5, "ScaleUpStabilized"),
        # Down: the greatest of the window, but never up because of it.
        ((0, 60), past((4, 50)), 5, 2, 4, "ScaleDownStabilized"),
        ((0, 60), past((4, 70)), 5, 2, 2, "ScaleDownStabilized"),
        ((0, 60), past((9, 50)), 5, 2, 5, "ScaleDownStabilized"),
        ((60, 60), past((9, 50), (1, 50)), 5, 5, 5, "ScaleUpStabilized"),
    ],
)  # fmt: skip
def test_stabilization(
    windows: tuple[int, int],
    recommendations: tuple[Moment, ...],
    current: int,
    desired: int,
    replicas: int,
    reason: str,
) -> None:
    up, down = ({"stabilizationWindowSeconds": seconds} for seconds in windows)
    decision = stabilize(History(recommendations), behavior(up, down), current, desired, NOW)
    assert (decision.replicas, decision.reason) == (replicas, reason)


@pytest.mark.parametrize(
    ("up", "history", "current", "desired", "replicas", "reason"),
    [
        ({}, History(), 1, 9, 5, "ScaleUpLimit"),
        ({}, History(), 8, 20, 16, "ScaleUpLimit"),
        ({}, History(), 8, 99, 16, "ScaleUpLimit"),
        ({}, History(), 20, 99, 30, "TooManyReplicas"),
        ({}, History(), 8, 10, 10, "DesiredWithinRange"),
        ({"selectPolicy": "Min"}, History(), 8, 20, 12, "ScaleUpLimit"),
        ({"selectPolicy": "Disabled"}, History(), 8, 20, 8, "ScaleUpLimit"),
        (policies(("Percent", 10, 60)), History(), 3, 9, 4, "ScaleUpLimit"),
        (policies(("Percent", 10, 60)), History(), 100, 120, 30, "TooManyReplicas"),
        # What was added in the period counts, what was removed is given back.
        (policies(("Pods", 4, 60)), History(added=past((3, 59))), 8, 20, 9, "ScaleUpLimit"),
        (policies(("Pods", 4, 60)), History(added=past((3, 60))), 8, 20, 12, "ScaleUpLimit"),
        (policies(("Pods", 4, 60)), History(added=past((9, 5))), 8, 20, 8, "ScaleUpLimit"),
        (policies(("Pods", 4, 60)), History(removed=past((2, 5))), 8, 20, 14, "ScaleUpLimit"),
    ],
)
def test_policies_up(
    up: dict[str, Any], history: History, current: int, desired: int, replicas: int, reason: str
) -> None:
    decision = limit_by_policies(history, behavior(up), current, desired, Bounds(2, 30), NOW)
    assert (decision.replicas, decision.reason) == (replicas, reason)


@pytest.mark.parametrize(
    ("down", "history", "current", "desired", "replicas", "reason"),
    [
        ({}, History(), 9, 1, 2, "TooFewReplicas"),
        ({}, History(), 9, 5, 5, "DesiredWithinRange"),
        ({"selectPolicy": "Disabled"}, History(), 9, 5, 9, "ScaleDownLimit"),
        (policies(("Pods", 2, 60)), History(), 9, 5, 7, "ScaleDownLimit"),
        (policies(("Percent", 10, 60)), History(), 100, 5, 90, "ScaleDownLimit"),
        (policies(("Percent", 50, 60), ("Pods", 1, 60)), History(), 9, 2, 4, "ScaleDownLimit"),
        (policies(("Percent", 50, 60), ("Pods", 1, 60)) | {"selectPolicy": "Min"},
         History(), 9, 2, 8, "ScaleDownLimit"),
        (policies(("Pods", 2, 60)), History(removed=past((1, 59))), 9, 5, 8, "ScaleDownLimit"),
        (policies(("Pods", 2, 60)), History(removed=past((5, 59))), 9, 5, 9, "ScaleDownLimit"),
        (policies(("Pods", 2, 60)), History(added=past((1, 59))), 9, 5, 6, "ScaleDownLimit"),
    ],
)  # fmt: skip
def test_policies_down(
    down: dict[str, Any], history: History, current: int, desired: int, replicas: int, reason: str
) -> None:
    decision = limit_by_policies(history, behavior(down=down), current, desired, Bounds(2, 30), NOW)
    assert (decision.replicas, decision.reason) == (replicas, reason)


def test_the_present_number_is_within_the_policies() -> None:
    decision = limit_by_policies(History(), behavior(), 5, 5, Bounds(1, 9), NOW)
    assert (decision.replicas, decision.reason) == (5, "DesiredWithinRange")


def test_the_history_keeps_what_still_matters() -> None:
    history = History(past((1, 301), (2, 300)), past((1, 16), (2, 15)), past((1, 16), (2, 14)))
    assert recommended(history, 7, NOW, 300).recommendations == (*past((2, 300)), Moment(7, NOW))
    up = scaled(history, behavior(), 2, 5, NOW)
    assert (up.added, up.removed) == ((*past((2, 15)), Moment(3, NOW)), past((2, 14)))
    down = scaled(history, behavior(), 5, 2, NOW)
    assert (down.added, down.removed) == (past((2, 15)), (*past((2, 14)), Moment(3, NOW)))


COUNTS = st.integers(1, 500)
MOMENTS = st.lists(st.builds(Moment, st.integers(0, 100), st.floats(0, NOW)), max_size=8).map(tuple)
HISTORIES = st.builds(History, MOMENTS, MOMENTS, MOMENTS)
POLICIES = st.lists(
    st.tuples(st.sampled_from(["Pods", "Percent"]), st.integers(1, 200), st.integers(1, 1800)),
    min_size=1, max_size=3,
)  # fmt: skip
RULES = st.builds(
    lambda select, window, listed: {
        "selectPolicy": select, "stabilizationWindowSeconds": window, **policies(*listed),
    },
    st.sampled_from(["Max", "Min", "Disabled"]), st.integers(0, 3600), POLICIES,
)  # fmt: skip
BEHAVIORS = st.builds(behavior, RULES, RULES)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_the_result_is_within_the_bounds(a: int, b: int, current: int, desired: int) -> None:
    bounds = Bounds(min(a, b), max(a, b))
    current = min(max(current, bounds.minimum), bounds.maximum)
    assert bounds.minimum <= limit(current, desired, bounds).replicas <= bounds.maximum


@given(HISTORIES, BEHAVIORS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_policies_keep_the_bounds_and_the_direction(
    history: History, rules: Behavior, a: int, b: int, current: int, desired: int
) -> None:
    bounds = Bounds(min(a, b), max(a, b))
    current = min(max(current, bounds.minimum), bounds.maximum)
    replicas = limit_by_policies(history, rules, current, desired, bounds, NOW).replicas
    assert bounds.minimum <= replicas <= bounds.maximum or replicas == desired == current
    low, high = sorted((current, desired))
    if bounds.minimum <= desired <= bounds.maximum:
        assert low <= replicas <= high
    if rules.scale_up.select_policy == "Disabled":
        assert replicas <= current
    if rules.scale_down.select_policy == "Disabled":
        assert replicas >= current


@given(HISTORIES, BEHAVIORS, COUNTS, COUNTS, COUNTS)
def test_more_is_never_less(
    history: History, rules: Behavior, current: int, desired: int, more: int
) -> None:
    bounds = Bounds(1, 1000)
    first = limit_by_policies(history, rules, current, desired, bounds, NOW).replicas
    second = limit_by_policies(history, rules, current, desired + more, bounds, NOW).replicas
    assert first <= second


@given(HISTORIES, BEHAVIORS, COUNTS, COUNTS)
def test_stabilization_never_goes_beyond_what_is_wanted(
    history: History, rules: Behavior, current: int, desired: int
) -> None:
    low, high = sorted((current, desired))
    assert low <= stabilize(history, rules, current, desired, NOW).replicas <= high


@given(st.lists(st.tuples(st.floats(1, 20), COUNTS), min_size=1, max_size=30))
def test_no_more_pods_are_added_in_a_period_than_a_single_policy_allows(
    steps: list[tuple[float, int]],
) -> None:
    """Whatever is recommended when, pods of the last period never exceed the policy's number."""
    rules = behavior(policies(("Pods", 3, 60)), policies(("Pods", 2, 60)))
    history, current, now = History(), 10, 0.0
    changes: list[tuple[float, int]] = []
    for pause, more in steps:
        now += pause
        decision = limit_by_policies(
            history, rules, current, current + more, Bounds(1, 100_000), now
        )
        if decision.replicas != current:
            history = scaled(history, rules, current, decision.replicas, now)
            changes.append((now, decision.replicas - current))
            current = decision.replicas
        within = sum(change for at, change in changes if at > now - 60)
        assert within <= 3
