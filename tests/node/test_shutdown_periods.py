from __future__ import annotations

import pytest

from moorage.node.shutdown_periods import ShutdownPeriod, grouped, periods_of

CRITICAL = 2_000_000_000
P = ShutdownPeriod


@pytest.mark.parametrize(
    ("total_s", "critical_s", "by_priority", "periods"),
    [
        (0, 0, (), ()),
        (30, 10, (), (P(0, 20), P(CRITICAL, 10))),
        (30, 0, (), (P(0, 30), P(CRITICAL, 0))),
        (30, 30, (), (P(0, 0), P(CRITICAL, 30))),
        (2.5, 1, (), (P(0, 1), P(CRITICAL, 1))),
        (1, 1, (), (P(0, 0), P(CRITICAL, 1))),
        (0, 0, (P(10, 5), P(0, 60), P(5, 7)), (P(0, 60), P(5, 7), P(10, 5))),
    ],
)
def test_settings_make_periods(
    total_s: float,
    critical_s: float,
    by_priority: tuple[ShutdownPeriod, ...],
    periods: tuple[ShutdownPeriod, ...],
) -> None:
    assert periods_of(total_s, critical_s, by_priority) == periods


@pytest.mark.parametrize(
    ("total_s", "critical_s", "by_priority", "message"),
    [
        (5, 6, (), "shutdownGracePeriodCriticalPods 6s must be <= shutdownGracePeriod 5s"),
        (0.5, 0, (), "shutdownGracePeriod 0.5s must be either zero or otherwise >= 1 sec"),
        (-1, -2, (), "shutdownGracePeriod -1s must be either zero or otherwise >= 1 sec"),
        (5, 0.5, (), "shutdownGracePeriodCriticalPods 0.5s must be either zero or otherwise >="),
        (5, -1, (), "shutdownGracePeriodCriticalPods -1s must be either zero"),
        (5, 0, (P(0, 1),), "Cannot specify both shutdownGracePeriodByPodPriority and"),
    ],
)
def test_settings_that_upstream_refuses_are_refused(
    total_s: float, critical_s: float, by_priority: tuple[ShutdownPeriod, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        periods_of(total_s, critical_s, by_priority)
    assert message in str(caught.value)


def test_a_pod_belongs_to_the_highest_period_that_is_not_above_it() -> None:
    periods = (P(0, 1), P(10, 2), P(20, 3), P(30, 4))
    pods = [-5, 0, 9, 10, 19, 35, CRITICAL]
    assert grouped(periods, pods, int) == [
        (P(0, 1), [-5, 0, 9]),
        (P(10, 2), [10, 19]),
        (P(30, 4), [35, CRITICAL]),
    ]
    assert grouped((P(10, 1),), [5], int) == [(P(10, 1), [5])]
