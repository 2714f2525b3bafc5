from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api import quantity
from moorage.node.pressure.thresholds import (
    SIGNALS,
    Amount,
    EvictionOptions,
    Observation,
    Threshold,
    ThresholdError,
    hard_reservation,
    met,
    thresholds_of,
)

GIB = 1 << 30


def test_the_defaults_are_upstreams() -> None:
    shown = [
        (one.signal, str(one.value.quantity or one.value.share), one.grace_s)
        for one in thresholds_of(EvictionOptions())
    ]
    assert shown == [
        ("memory.available", "100Mi", 0),
        ("allocatableMemory.available", "100Mi", 0),
        ("nodefs.available", "0.1", 0),
        ("imagefs.available", "0.15", 0),
        ("nodefs.inodesFree", "0.05", 0),
        ("imagefs.inodesFree", "0.05", 0),
    ]


def test_soft_thresholds_have_their_grace_period_and_reclaim() -> None:
    options = EvictionOptions(
        hard={"pid.available": "100", "nodefs.available": "0%"},
        soft={"memory.available": "1Gi"},
        soft_grace={"memory.available": "1m30s"},
        minimum_reclaim={"memory.available": "10%", "pid.available": "0"},
    )
    soft, hard = thresholds_of(options)
    gib = Amount(quantity.parse("1Gi"))
    assert soft == Threshold("memory.available", gib, 90.0, Amount(share=0.1))
    assert (hard.signal, hard.is_hard, soft.is_hard) == ("pid.available", True, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hard": {"memory.free": "1Gi"}}, "unsupported eviction signal memory.free: "),
        ({"hard": {"memory.available": "much"}}, "eviction threshold memory.available: 'much'"),
        ({"hard": {"memory.available": "0"}}, "threshold memory.available must be positive: 0"),
        ({"hard": {"memory.available": "-1"}}, "threshold memory.available must be positive: -1"),
        ({"hard": {"memory.available": "101%"}}, "must be between 0% and 100%: 101%"),
        ({"hard": {"memory.available": "x%"}}, "eviction threshold memory.available: 'x%'"),
        ({"hard": {"memory.available": "nan%"}}, "'nan%' is no percentage"),
        (
            {"soft": {"memory.available": "1Gi"}},
            "grace period must be specified for the soft eviction threshold memory.available",
        ),
        ({"soft_grace": {"pid.available": "soon"}}, "eviction grace period pid.available: "),
        ({"minimum_reclaim": {"pid.available": "0%"}}, "minimum reclaim pid.available must be"),
        ({"minimum_reclaim": {"pid.available": "-1"}}, "minimum reclaim pid.available must be"),
    ],
)
def test_thresholds_that_cannot_be_used_are_named(options: Any, message: str) -> None:
    with pytest.raises(ThresholdError) as caught:
        thresholds_of(EvictionOptions(**options))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("value", "reclaim", "available", "is_met", "is_unresolved"),
    [
        ("100", None, 99, True, True),
        ("100", None, 100, False, False),
        ("10%", None, 99, True, True),
        ("10%", None, 100, False, False),
        ("100", "50", 100, False, True),
        ("100", "5%", 149, False, True),
        ("100", "50", 150, False, False),
    ],
)
def test_a_threshold_is_met_below_its_value_and_resolved_above_its_reclaim(
    value: str, reclaim: str | None, available: int, is_met: bool, is_unresolved: bool
) -> None:
    options = EvictionOptions(
        hard={"pid.available": value},
        minimum_reclaim={} if reclaim is None else {"pid.available": reclaim},
    )
    seen = {"pid.available": Observation(available, 1000)}
    for with_reclaim, wanted in ((False, is_met), (True, is_unresolved)):
        assert bool(met(thresholds_of(options), seen, with_reclaim=with_reclaim)) == wanted


def test_a_signal_that_is_not_measured_is_not_met() -> None:
    assert met(thresholds_of(EvictionOptions()), {}, with_reclaim=True) == ()


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 40), st.integers(0, 1 << 40))
def test_more_of_a_resource_never_meets_more_thresholds(
    available: int, capacity: int, more: int
) -> None:
    def number(amount: int) -> int:
        seen = {signal: Observation(amount, capacity) for signal in SIGNALS}
        return len(met(thresholds_of(EvictionOptions()), seen, with_reclaim=False))

    assert number(available + more) <= number(available)


def test_hard_thresholds_are_kept_from_what_pods_may_request() -> None:
    capacity = {"memory": 4 * GIB, "ephemeral-storage": 100 * GIB}
    assert hard_reservation(EvictionOptions(), capacity) == {
        "memory": 100 << 20,
        "ephemeral-storage": 10 * GIB,
    }
    assert hard_reservation(EvictionOptions(hard={}), capacity) == {}


@pytest.mark.parametrize(
    "text",
    ["\uff11%", "1_0%", " 1%", "1 %", "%", "inf%", "nan%", "٣Mi", "9" * 5000, "9" * 5000 + "%"],
)
@pytest.mark.parametrize("where", ["hard", "minimum_reclaim"])
def test_amounts_are_of_ascii_digits_and_not_endless(text: str, where: str) -> None:
    given: Any = {"hard": {}, where: {"memory.available": text}}
    with pytest.raises(ThresholdError) as caught:
        thresholds_of(EvictionOptions(**given))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["9" * 5000 + "s", "0" * 5000 + "1s", "1s" * 5000, "\uff11s"])
def test_grace_periods_are_not_endless(text: str) -> None:
    options = EvictionOptions(
        hard={}, soft={"memory.available": "1Mi"}, soft_grace={"memory.available": text}
    )
    with pytest.raises(ThresholdError) as caught:
        thresholds_of(options)
    assert len(str(caught.value)) < 300
