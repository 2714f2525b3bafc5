from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.stats.statistics import CpuRates

S = 1_000_000_000


@pytest.mark.parametrize(
    ("readings", "rates"),
    [
        ([(0, 0), (10 * S, 5 * S)], [None, S // 2]),
        ([(0, 0), (S // 2, S // 2)], [None, S]),
        # Who asks at once after another gets the rate over a second or more.
        ([(0, 0), (10 * S, 5 * S), (10 * S + 1, 5 * S + 1)], [None, S // 2, S // 2]),
        ([(0, 0), (10 * S, 5 * S), (11 * S, 5 * S)], [None, S // 2, 0]),
        # It was created again: the earlier usage is another's.
        ([(0, 9 * S), (S, 1), (2 * S, S + 1)], [None, None, S]),
        ([(0, 0), (0, 0)], [None, None]),
    ],
)
def test_what_is_used_each_second(readings: list[tuple[int, int]], rates: list[int | None]) -> None:
    kept = CpuRates()
    assert [kept.rate("a", *reading) for reading in readings] == rates


def test_those_asked_for_least_lately_are_forgotten() -> None:
    kept = CpuRates(most_kept=2)
    for id_ in ("a", "b", "a", "c"):
        kept.rate(id_, 0, 0)
    assert kept.rate("a", S, 1) == 1
    assert kept.rate("b", S, 1) is None


@given(st.lists(st.tuples(st.integers(1, 5 * S), st.integers(0, 4)), max_size=30))
def test_a_rate_is_never_more_than_the_processors_gave(steps: list[tuple[int, int]]) -> None:
    kept, at, used = CpuRates(), 0, 0
    for elapsed, processors in steps:
        at, used = at + elapsed, used + elapsed * processors
        rate = kept.rate("a", at, used)
        assert rate is None or 0 <= rate <= 4 * S
