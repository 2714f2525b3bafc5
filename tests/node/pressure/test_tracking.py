from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.node.pressure.thresholds import EvictionOptions, Observation, thresholds_of
from moorage.node.pressure.tracking import PressureState, track

THRESHOLDS = thresholds_of(
    EvictionOptions(
        hard={"memory.available": "100"},
        soft={"pid.available": "100"},
        soft_grace={"pid.available": "30s"},
        minimum_reclaim={"memory.available": "50"},
    )
)

Script = Sequence[tuple[float, int, int]]
"""(seconds, available memory, available process IDs) of each look."""


def after(*looks: tuple[float, int, int], transition_s: float = 60.0) -> PressureState:
    state = PressureState()
    for now_s, memory, pids in looks:
        seen = {
            "memory.available": Observation(memory, 1000),
            "pid.available": Observation(pids, 1000),
        }
        state = track(state, THRESHOLDS, seen, now_s, transition_s)
    return state


@pytest.mark.parametrize(
    ("looks", "due", "conditions"),
    [
        ([(0, 500, 500)], [], []),
        ([(0, 99, 500)], ["memory.available"], ["MemoryPressure"]),
        ([(0, 500, 99)], [], ["PIDPressure"]),
        ([(0, 500, 99), (29, 500, 99)], [], ["PIDPressure"]),
        ([(0, 500, 99), (30, 500, 99)], ["pid.available"], ["PIDPressure"]),
        ([(0, 500, 99), (20, 500, 500), (40, 500, 99)], [], ["PIDPressure"]),
        ([(0, 99, 500), (10, 120, 500)], ["memory.available"], ["MemoryPressure"]),
        ([(0, 99, 500), (10, 150, 500)], [], ["MemoryPressure"]),
        ([(0, 99, 500), (10, 150, 500), (59, 150, 500)], [], ["MemoryPressure"]),
        ([(0, 99, 500), (10, 150, 500), (60, 150, 500)], [], []),
        ([(0, 99, 99), (30, 99, 99)], ["memory.available", "pid.available"],
         ["MemoryPressure", "PIDPressure"]),
    ],
    ids=[
        "enough",
        "a hard threshold is due at once",
        "a soft one reports at once",
        "within its grace period",
        "past it",
        "interrupted",
        "the reclaim is not there yet",
        "the reclaim is there, the condition stays",
        "within the transition period",
        "past it, from the last time it was met",
        "memory comes first",
    ],
)  # fmt: skip
def test_looks_lead_to_conditions_and_evictions(
    looks: Script, due: list[str], conditions: list[str]
) -> None:
    state = after(*looks)
    assert [one.signal for one in state.due] == due
    assert list(state.conditions) == conditions


def test_without_a_transition_period_a_condition_holds_while_its_threshold_is_met() -> None:
    assert after((5, 99, 500), transition_s=0).conditions == ("MemoryPressure",)
    assert after((5, 99, 500), (6, 500, 500), transition_s=0).conditions == ()


@given(
    st.lists(
        st.tuples(st.floats(0, 90), st.integers(0, 300), st.integers(0, 300)),
        min_size=1,
        max_size=12,
    )
)
def test_what_is_due_always_has_its_condition(steps: list[tuple[float, int, int]]) -> None:
    looks, now_s = [], 0.0
    for pause_s, memory, pids in steps:
        now_s += pause_s
        looks.append((now_s, memory, pids))
    state = after(*looks)
    names = {"memory.available": "MemoryPressure", "pid.available": "PIDPressure"}
    assert {names[one.signal] for one in state.due} <= set(state.conditions)
    # A look at the same moment with the same numbers changes nothing.
    assert after(*looks, looks[-1]) == state
