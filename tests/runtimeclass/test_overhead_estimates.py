"""Estimates of overhead: percentiles and their intervals, growth, sensible quantities."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.quantity import parse
from moorage.runtimeclass.overhead_estimates import (
    MEBIBYTE,
    Activity,
    NoSamplesError,
    OverheadSample,
    linear_growth,
    percentile,
    percentile_interval,
    pod_fixed,
    propose,
    round_up_bytes,
    round_up_milli,
)

VALUES = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=60)
PERCENTS = st.floats(0, 100)


def sample(
    memory_mebibytes: float, containers: int = 1, payload: int = 0, cpu: float | None = 1.0
) -> OverheadSample:
    return OverheadSample(
        containers=containers,
        payload_bytes=payload * MEBIBYTE,
        activity=Activity.IDLE,
        memory_bytes=int(memory_mebibytes * MEBIBYTE),
        cpu_milli=cpu,
    )


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([5], 0, 5),
        ([5], 95, 5),
        ([1, 2, 3], 50, 2),
        ([3, 1, 2], 50, 2),
        ([1, 2], 50, 1.5),
        ([0, 10], 95, 9.5),
        ([1, 2, 3, 4], 100, 4),
        ([1, 2, 3, 4], 0, 1),
    ],
)
def test_a_percentile_lies_between_the_samples_around_it(
    values: list[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


@given(VALUES, PERCENTS, PERCENTS)
def test_percentiles_grow_with_the_percentage(values: list[int], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert percentile(values, low) <= percentile(values, high) + 1e-6
    assert min(values) <= percentile(values, one) <= max(values)


@given(VALUES, PERCENTS, st.floats(0.5, 0.999))
def test_an_interval_contains_its_percentile_and_ends_at_samples(
    values: list[int], percent: float, confidence: float
) -> None:
    interval = percentile_interval(values, percent, confidence)
    assert interval.lower <= interval.estimate <= interval.upper
    assert {interval.lower, interval.upper} <= set(values)
    assert 0 <= interval.confidence <= 1
    if interval.confidence < confidence:
        assert (interval.lower, interval.upper) == (min(values), max(values))


@given(VALUES, st.floats(0.5, 0.9), st.floats(0.5, 0.9))
def test_more_confidence_never_narrows_an_interval(
    values: list[int], one: float, other: float
) -> None:
    low, high = sorted((one, other))
    narrow, wide = percentile_interval(values, 90, low), percentile_interval(values, 90, high)
    assert wide.lower <= narrow.lower
    assert narrow.upper <= wide.upper


def test_an_interval_covers_the_percentile_as_often_as_it_says() -> None:
    chance = random.Random(1)
    rounds, covered = 400, 0
    for _ in range(rounds):
        values = [chance.random() for _ in range(120)]
        interval = percentile_interval(values, 90, 0.95)
        assert interval.confidence >= 0.95
        covered += interval.lower <= 0.9 <= interval.upper
    assert covered / rounds >= 0.93


def test_few_samples_give_their_range_with_the_confidence_that_it_has() -> None:
    interval = percentile_interval([1, 2, 3, 4, 5], 95)
    assert (interval.lower, interval.upper) == (1, 5)
    assert interval.confidence == pytest.approx(1 - 0.95**5 - 0.05**5)


def test_thousands_of_samples_are_no_overflow() -> None:
    interval = percentile_interval(list(range(5000)), 95)
    assert interval.lower < interval.estimate < interval.upper
    assert interval.confidence >= 0.95


def test_nothing_is_estimated_from_nothing() -> None:
    for estimate in (percentile, percentile_interval):
        with pytest.raises(NoSamplesError):
            estimate([], 50)
    with pytest.raises(NoSamplesError):
        propose([])
    with pytest.raises(NoSamplesError, match="3 containers"):
        propose([sample(1)], containers=3)


@pytest.mark.parametrize("percent", [-1, 101, float("nan")])
def test_a_percentile_out_of_range_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 100"):
        percentile([1.0], percent)


def test_a_confidence_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile_interval([1.0], 50, 1.0)


@given(
    st.floats(1, 500), st.floats(0, 50), st.floats(0, 2),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 64)), min_size=4, max_size=12),
)  # fmt: skip
def test_linear_growth_is_found_exactly(
    base: float, per_container: float, per_mebibyte: float, shapes: list[tuple[int, int]]
) -> None:
    shapes = [*shapes, (1, 0), (2, 0), (1, 16), (3, 16)]
    values = {
        shape: base + per_container * (shape[0] - 1) + per_mebibyte * shape[1] for shape in shapes
    }
    samples = [sample(0, containers, payload) for containers, payload in shapes]
    growth = linear_growth(
        samples, lambda one: values[one.containers, one.payload_bytes // MEBIBYTE]
    )
    assert growth.base == pytest.approx(base, abs=1e-4)
    assert growth.per_container == pytest.approx(per_container, abs=1e-4)
    assert growth.per_payload_mebibyte == pytest.approx(per_mebibyte, abs=1e-4)


def test_growth_in_what_did_not_vary_is_unknown() -> None:
    assert linear_growth([sample(3)], lambda one: one.memory_bytes).per_container is None
    growth = linear_growth([sample(3), sample(5, 2)], lambda one: one.memory_bytes)
    assert growth.per_container == pytest.approx(2 * MEBIBYTE)
    assert growth.per_payload_mebibyte is None


def test_a_proposal_is_the_upper_end_rounded_up_of_pods_of_its_size() -> None:
    samples = [sample(20.2, cpu=3.1), sample(21.7, cpu=2.0), sample(40, containers=2, cpu=9)]
    proposal = propose(samples)
    assert proposal.samples == 2
    assert proposal.pod_fixed == {"cpu": "4m", "memory": "22Mi"}
    assert propose(samples, containers=2).pod_fixed == {"cpu": "9m", "memory": "40Mi"}


def test_a_proposal_without_cpu_proposes_memory_alone() -> None:
    proposal = propose([sample(20, cpu=None)])
    assert proposal.cpu is None
    assert proposal.cpu_growth is None
    assert proposal.pod_fixed == {"memory": "20Mi"}


def test_no_overhead_is_no_entry() -> None:
    assert pod_fixed(0, 0) == {}


@given(st.floats(0, 1e12), st.floats(0, 1e6))
def test_quantities_are_rounded_up_in_their_units(memory_bytes: float, cpu_milli: float) -> None:
    amounts = pod_fixed(memory_bytes, cpu_milli)
    assert parse(amounts.get("memory", "0")).value >= memory_bytes
    assert parse(amounts.get("cpu", "0")).milli >= cpu_milli
    assert parse(amounts.get("memory", "0")).value <= memory_bytes * 1.2 + MEBIBYTE
    assert parse(amounts.get("cpu", "0")).milli <= cpu_milli * 1.25 + 1


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_rounding_keeps_the_order(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert round_up_bytes(low) <= round_up_bytes(high)
    assert round_up_milli(low) <= round_up_milli(high)
