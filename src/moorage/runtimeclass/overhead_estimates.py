"""Overhead estimates: from samples of probe pods to a proposal for `overhead.podFixed`.

A sample is one pod: what it was charged with beyond what its containers hold, in bytes of memory
and thousandths of a CPU. Percentiles have a confidence interval of order statistics, which assumes
no distribution: `P(lower ≤ percentile ≤ upper)` is a sum of binomial probabilities. Few samples
have no such interval of 95 %; the widest one is given then, with the confidence that it has. Pure.
Source: KEP-688 (what overhead is); David and Nagaraja, "Order Statistics", 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from moorage.api.quantity import Family, Quantity

MEBIBYTE = 1 << 20

DEFAULT_PERCENTILE = 95.0
DEFAULT_CONFIDENCE = 0.95

_NANO = 1_000_000_000
_NANO_OF_MILLI = 1_000_000


class NoSamplesError(ValueError):
    """There is nothing to estimate from."""


class Activity(StrEnum):
    """Activity of a probe pod while it was measured."""

    IDLE = "idle"
    BUSY = "busy"


class OverheadSample(msgspec.Struct, frozen=True, kw_only=True):
    """Overhead of one probe pod in one activity.

    `payload_bytes` is the memory that its containers hold together. `memory_bytes` and `cpu_milli`
    are the overhead, never negative; `cpu_milli` is None where it could not be measured.
    """

    containers: int
    payload_bytes: int
    activity: Activity
    memory_bytes: int
    cpu_milli: float | None = None


class Interval(msgspec.Struct, frozen=True):
    """A percentile with its confidence interval. `confidence` is what the interval has, 0 to 1."""

    percentile: float
    estimate: float
    lower: float
    upper: float
    confidence: float


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Linear growth of overhead with a pod's size; None where the samples do not vary in it.

    `base` is that of a pod of one container without payload; `per_container` is added for each
    further container, and `per_payload_mebibyte` for each MiB that the containers hold. Bytes, or
    thousandths of a CPU.
    """

    base: float
    per_container: float | None = None
    per_payload_mebibyte: float | None = None


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal for `overhead.podFixed` of pods with `containers` containers.

    `samples` is the number of pods behind `memory`; `cpu` is None without samples of CPU.
    """

    containers: int
    samples: int
    memory: Interval
    cpu: Interval | None
    memory_growth: Growth
    cpu_growth: Growth | None
    pod_fixed: dict[str, str]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile by linear interpolation between the two samples around it.

    Raises NoSamplesError, and ValueError unless 0 ≤ percent ≤ 100.
    """
    if not values:
        raise NoSamplesError("a percentile needs samples")
    if not 0 <= percent <= 100:
        raise ValueError(f"percentile {percent:g} is not between 0 and 100")
    ordered = sorted(values)
    position = percent / 100 * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    share = position - below
    # Not `a + share * (b - a)`, which may leave [a, b] by rounding.
    return min(max(ordered[below] * (1 - share) + ordered[above] * share, ordered[below]),
               ordered[above])  # fmt: skip


def percentile_interval(
    values: Sequence[float],
    percent: float = DEFAULT_PERCENTILE,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Interval:
    """Return a percentile and its confidence interval of order statistics.

    The interval is the narrowest around the estimate whose coverage reaches `confidence`, else that
    from the least to the greatest sample with the coverage it has. Raises NoSamplesError, and
    ValueError for a percentile or confidence out of range.
    """
    estimate = percentile(values, percent)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence:g} is not between 0 and 1")
    ordered = sorted(values)
    count = len(ordered)
    cumulative = _binomial_cumulative(count, percent / 100)
    position = percent / 100 * (count - 1)
    low, high = math.floor(position), math.ceil(position)
    while True:
        # Samples low and high (from 0) enclose the percentile if at least low + 1, and at most
        # high, samples lie below it.
        coverage = max(0.0, cumulative[high] - cumulative[low])
        if coverage >= confidence or (low == 0 and high == count - 1):
            return Interval(percent, estimate, ordered[low], ordered[high], min(coverage, 1.0))
        down = cumulative[low] - cumulative[low - 1] if low > 0 else -1.0
        up = cumulative[high + 1] - cumulative[high] if high < count - 1 else -1.0
        if up >= down:
            high += 1
        else:
            low -= 1


def _binomial_cumulative(count: int, chance: float) -> list[float]:
    """Return P(X ≤ k) for k = 0 … count of a binomial X."""
    if chance in (0.0, 1.0):
        return [1.0 if chance == 0.0 else 0.0] * count + [1.0]
    total, sums = 0.0, []
    for k in range(count + 1):
        # By logarithms: the coefficient alone exceeds a float from 1030 samples on.
        logarithm = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        logarithm += k * math.log(chance) + (count - k) * math.log1p(-chance)
        total += math.exp(logarithm)
        sums.append(min(total, 1.0))
    return sums


def linear_growth(
    samples: Sequence[OverheadSample], value: Callable[[OverheadSample], float]
) -> Growth:
    """Fit a value of the samples by least squares, linear in containers and payload.

    A dimension in which the samples do not vary, or only together with the other, has no
    coefficient. Raises NoSamplesError.
    """
    if not samples:
        raise NoSamplesError("growth needs samples")
    containers = [float(sample.containers - 1) for sample in samples]
    payloads = [sample.payload_bytes / MEBIBYTE for sample in samples]
    values = [value(sample) for sample in samples]
    for used in (("containers", "payload"), ("containers",), ("payload",), ()):
        columns = [[1.0] * len(samples)]
        columns += [containers] if "containers" in used else []
        columns += [payloads] if "payload" in used else []
        solved = _least_squares(columns, values)
        if solved is not None:
            named = dict(zip(used, solved[1:], strict=True))
            return Growth(
                base=max(0.0, solved[0]),
                per_container=named.get("containers"),
                per_payload_mebibyte=named.get("payload"),
            )
    raise AssertionError("a constant always fits")


def _least_squares(
    columns: Sequence[Sequence[float]], values: Sequence[float]
) -> list[float] | None:
    """Return the coefficients of the columns, None if the columns depend on each other."""
    size = len(columns)
    rows = [
        [sum(a * b for a, b in zip(left, right, strict=True)) for right in columns]
        + [sum(a * b for a, b in zip(left, values, strict=True))]
        for left in columns
    ]
    for step in range(size):
        pivot = max(range(step, size), key=lambda row: abs(rows[row][step]))
        rows[step], rows[pivot] = rows[pivot], rows[step]
        if abs(rows[step][step]) < 1e-9 * max(1.0, *(abs(one) for one in rows[step][:size])):
            return None
        for row in range(size):
            if row != step:
                factor = rows[row][step] / rows[step][step]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[step], strict=True)]
    return [rows[step][size] / rows[step][step] for step in range(size)]


def propose(
    samples: Sequence[OverheadSample],
    *,
    containers: int = 1,
    percent: float = DEFAULT_PERCENTILE,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Proposal:
    """Return a proposal: the upper end of the percentile's interval, rounded up.

    Only pods with `containers` containers count for it; all of them for the growth. Raises
    NoSamplesError without such a pod, and ValueError as `percentile_interval`.
    """
    shaped = [sample for sample in samples if sample.containers == containers]
    if not shaped:
        raise NoSamplesError(f"no probe pod with {containers} containers was measured")
    memory = percentile_interval([one.memory_bytes for one in shaped], percent, confidence)
    cpus = [one.cpu_milli for one in shaped if one.cpu_milli is not None]
    cpu = percentile_interval(cpus, percent, confidence) if cpus else None
    with_cpu = [one for one in samples if one.cpu_milli is not None]
    return Proposal(
        containers=containers,
        samples=len(shaped),
        memory=memory,
        cpu=cpu,
        memory_growth=linear_growth(samples, lambda one: one.memory_bytes),
        cpu_growth=linear_growth(with_cpu, lambda one: one.cpu_milli or 0.0) if with_cpu else None,
        pod_fixed=pod_fixed(memory.upper, None if cpu is None else cpu.upper),
    )


def pod_fixed(memory_bytes: float, cpu_milli: float | None) -> dict[str, str]:
    """Return `overhead.podFixed` of amounts, rounded up; what is nothing is left out."""
    amounts = {}
    milli = round_up_milli(cpu_milli or 0)
    if milli:
        amounts["cpu"] = str(Quantity(milli * _NANO_OF_MILLI))
    rounded = round_up_bytes(memory_bytes)
    if rounded:
        amounts["memory"] = str(Quantity(rounded * _NANO, Family.BINARY))
    return amounts


_STEPS_BYTES = ((32 * MEBIBYTE, MEBIBYTE), (256 * MEBIBYTE, 4 * MEBIBYTE))
_LAST_STEP_BYTES = 16 * MEBIBYTE
_STEPS_MILLI = ((20, 1), (100, 5))
_LAST_STEP_MILLI = 10


def round_up_bytes(amount_bytes: float) -> int:
    """Round memory up: to 1 MiB up to 32 MiB, to 4 MiB up to 256 MiB, to 16 MiB above."""
    return _round_up(amount_bytes, _STEPS_BYTES, _LAST_STEP_BYTES)


def round_up_milli(amount_milli: float) -> int:
    """Round thousandths of a CPU up: to 1 up to 20, to 5 up to 100, to 10 above."""
    return _round_up(amount_milli, _STEPS_MILLI, _LAST_STEP_MILLI)


def _round_up(amount: float, steps: Sequence[tuple[int, int]], last: int) -> int:
    step = next((step for bound, step in steps if amount <= bound), last)
    # Whole units first: a tiny amount divided by the step may underflow to nothing.
    return max(0, -(-math.ceil(amount) // step) * step)
