"""Drift: bounds of what pods cost, verdicts, and how long they must be seen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.overhead import (
    Bounds,
    Drift,
    DriftState,
    PodCost,
    Tolerance,
    judge,
    median_bounds,
    observe,
    overhead_bounds,
)
from moorage.runtimeclass.overhead_estimates import MEBIBYTE

MI = MEBIBYTE
SHARED, USER, MACHINE = (
    Isolation.SHARED_KERNEL,
    Isolation.USER_SPACE_KERNEL,
    Isolation.VIRTUAL_MACHINE,
)
SIZES = st.integers(0, 1 << 36)
TOLERANCE = Tolerance()


@pytest.mark.parametrize(
    ("pod", "containers", "anonymous", "isolation", "expected"),
    [
        (40, 30, None, SHARED, (10, 10)),
        (40, 40, None, SHARED, (0, 0)),
        (40, 30, 20, None, (10, 10)),
        # Divided evenly, or no overhead at all: without the level, no one can say which.
        (40, 40, 20, None, (0, 40)),
        (40, 40, 25, USER, (25, 25)),
        (40, 40, None, USER, (0, 40)),
        (400, 400, 390, MACHINE, (0, 400)),
        (400, 100, None, MACHINE, (300, 400)),
        # Figures of two moments.
        (30, 40, None, SHARED, (0, 0)),
        (30, 40, 50, USER, (30, 30)),
    ],
)
def test_bounds_say_what_is_known(
    pod: int, containers: int, anonymous: int | None, isolation: Isolation | None,
    expected: tuple[int, int],
) -> None:  # fmt: skip
    cost = PodCost(pod_bytes=pod, containers_bytes=containers, anonymous_bytes=anonymous)
    assert overhead_bounds(cost, isolation) == Bounds(*expected)


@given(SIZES, SIZES, st.none() | SIZES, st.none() | st.sampled_from(Isolation))
def test_bounds_are_ordered_and_within_the_pod(
    pod: int, containers: int, anonymous: int | None, isolation: Isolation | None
) -> None:
    cost = PodCost(pod_bytes=pod, containers_bytes=containers, anonymous_bytes=anonymous)
    bounds = overhead_bounds(cost, isolation)
    assert 0 <= bounds.lower <= bounds.upper <= pod


@pytest.mark.parametrize(
    ("declared_mi", "lower_mi", "upper_mi", "verdict"),
    [
        (20, 20, 20, Drift.FITS),
        (20, 25, 25, Drift.FITS),
        (20, 26, 26, Drift.TOO_LOW),
        (0, 4, 4, Drift.FITS),
        (0, 5, 5, Drift.TOO_LOW),
        (64, 31, 31, Drift.TOO_HIGH),
        (64, 33, 33, Drift.FITS),
        (30, 0, 0, Drift.FITS),
        (20, 0, 300, Drift.UNKNOWN),
        (200, 0, 40, Drift.TOO_HIGH),
        (20, 100, 300, Drift.TOO_LOW),
    ],
)
def test_verdicts(declared_mi: int, lower_mi: int, upper_mi: int, verdict: Drift) -> None:
    measured = Bounds(lower_mi * MI, upper_mi * MI)
    assert judge(declared_mi * MI, measured, TOLERANCE) is verdict


def test_without_pods_nothing_is_known() -> None:
    assert judge(MI, None, TOLERANCE) is Drift.UNKNOWN


@given(SIZES, SIZES, SIZES)
def test_no_verdict_both_ways(declared: int, one: int, other: int) -> None:
    """A larger declaration never turns what was enough into too little."""
    measured = Bounds(*sorted((one, other)))
    verdict = judge(declared, measured, TOLERANCE)
    larger = judge(declared * 2, measured, TOLERANCE)
    assert not (verdict is not Drift.TOO_LOW and larger is Drift.TOO_LOW)
    assert not (verdict is Drift.TOO_HIGH and larger is not Drift.TOO_HIGH)


def test_the_median_pod_counts() -> None:
    assert median_bounds([Bounds(1, 2), Bounds(3, 4), Bounds(900, 1000)]) == Bounds(3, 4)


def test_a_verdict_holds_after_it_was_seen_often_enough_in_a_row() -> None:
    state = DriftState(Drift.FITS)
    seen = [Drift.TOO_LOW, Drift.TOO_LOW, Drift.FITS, Drift.TOO_LOW, Drift.TOO_LOW, Drift.TOO_LOW]
    verdicts = []
    for one in seen:
        state = observe(state, one, TOLERANCE)
        verdicts.append(state.verdict)
    assert verdicts == [Drift.FITS] * 5 + [Drift.TOO_LOW]


def test_pods_that_end_take_no_verdict_back() -> None:
    assert observe(DriftState(Drift.TOO_LOW), Drift.UNKNOWN, TOLERANCE).verdict is Drift.TOO_LOW


@given(st.lists(st.sampled_from(Drift)))
def test_a_verdict_changes_at_most_every_few_observations(seen: list[Drift]) -> None:
    state, changes = DriftState(), 0
    for one in seen:
        after = observe(state, one, TOLERANCE)
        changes += after.verdict is not state.verdict
        state = after
    assert changes <= len(seen) // TOLERANCE.observations
