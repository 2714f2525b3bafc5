"""Pace of looking at what nodes change: at once, but for a node that changes all the time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.controllers.runtimegates.verdict import BURST, GATHER_S, REFILL_S, Pace


def test_a_node_that_changes_all_the_time_delays_no_other() -> None:
    pace = Pace()
    delays = [pace.delay_s("liar", number / 2) for number in range(1_000)]
    assert delays[:BURST] == [GATHER_S] * BURST
    assert min(delays[BURST + 2 :]) > GATHER_S
    assert max(delays) <= REFILL_S
    assert pace.delay_s("honest", 500) == GATHER_S
    # A node that has been quiet is looked at at once again.
    assert pace.delay_s("liar", 500 + REFILL_S) == GATHER_S


@given(st.lists(st.floats(0, 60), max_size=200))
def test_a_node_has_a_bounded_number_of_looks(pauses: list[float]) -> None:
    """Looks that are set are made once, however many changes set them."""
    pace, now_s, due_s, looks = Pace(), 0.0, float("inf"), 0
    for pause_s in pauses:
        now_s += pause_s
        if due_s <= now_s:
            looks, due_s = looks + 1, float("inf")
        due_s = min(due_s, now_s + pace.delay_s("a", now_s))
    assert looks <= 2 * BURST + now_s / REFILL_S * 2


def test_nodes_that_are_known_are_bounded() -> None:
    pace = Pace()
    for _ in range(BURST):
        assert pace.delay_s("noisy", 0) == GATHER_S
    for number in range(9_999):
        pace.delay_s(str(number), 0)
    assert pace.delay_s("noisy", 0) > GATHER_S
    for number in range(10_000):
        pace.delay_s(str(number), 0)
    assert pace.delay_s("noisy", 0) == GATHER_S
