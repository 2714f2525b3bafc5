"""Waves of a rollout, its record of moves, and the entries of its status."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from moorage.api.runtime_rollouts import MOST_LISTED, RolloutMoves
from moorage.runtimeclass.rollouts.assessment import Assessed, State
from moorage.runtimeclass.rollouts.obstacles import Unmovable, Workload
from moorage.runtimeclass.rollouts.record import Moved, only, record_of, with_moves
from moorage.runtimeclass.rollouts.report import counts_of, entries_of, with_condition
from moorage.runtimeclass.rollouts.waves import Wave, count_of, in_order, next_wave, present_wave
from tests.runtimeclass.rollouts.cluster import START


@pytest.mark.parametrize(
    ("value", "total", "count"),
    [(3, 1, 3), ("50%", 10, 5), ("50%", 11, 6), ("1%", 1, 1), ("0%", 9, 0), ("100%", 7, 7)],
)
def test_a_number_or_a_share_rounded_up(value: int | str, total: int, count: int) -> None:
    assert count_of(value, total) == count


def test_other_text_is_no_number() -> None:
    with pytest.raises(ValueError, match="'5' is neither a number nor a percentage"):
        count_of("5", 1)


@pytest.mark.parametrize(
    ("canary", "numbers", "wave", "room"),
    [
        (1, [], Wave(1, 1, 0), 1),
        (0, [], Wave(1, 5, 0), 5),
        (1, [1], Wave(1, 1, 1), 0),
        (1, [1, 2, 2], Wave(2, 5, 2), 3),
        (1, [1, 2, 2, 2, 2, 2, 2], Wave(2, 5, 6), 0),
    ],
)
def test_the_present_wave_is_the_last_of_those_that_moved(
    canary: int, numbers: list[int], wave: Wave, room: int
) -> None:
    present = present_wave(canary, "25%", numbers, 20)
    assert (present, present.room) == (wave, room)


def test_the_next_wave_is_empty_and_has_one_workload_at_least() -> None:
    assert next_wave(Wave(1, 1, 1), 1, "25%", 20) == Wave(2, 5, 0)
    assert next_wave(Wave(2, 1, 1), 1, 0, 20) == Wave(3, 1, 0)


def _workload(name: str, kind: str = "Deployment", namespace: str = "d", **fields: Any) -> Workload:
    return Workload(kind, namespace, name, f"u-{name}", "old", **fields)


def test_workloads_that_prove_something_early_are_moved_first() -> None:
    ordered = [
        _workload("z", size=1),
        _workload("a", kind="StatefulSet", namespace="c", size=2),
        _workload("a", size=2),
        _workload("b", size=2),
        _workload("a", kind="StatefulSet", size=2),
        _workload("none", size=0),
        _workload("cron", size=0, is_on_schedule=True),
        _workload("held", size=0, hold="by hand", is_on_schedule=True),
    ]
    assert in_order(reversed(ordered)) == ordered


_FIRST = RolloutMoves(1, "2026-01-01T00:00:00Z", ("a",))
_SECOND = RolloutMoves(2, "2026-01-01T00:00:05Z", ("b", "c"))


def test_moves_are_recorded_and_later_ones_replace_earlier_ones() -> None:
    assert record_of((_FIRST, _SECOND)) == {
        "a": Moved(START, 1),
        "b": Moved(START + timedelta(seconds=5), 2),
        "c": Moved(START + timedelta(seconds=5), 2),
    }
    later = RolloutMoves(3, "2026-01-01T00:00:09Z", ("c", "a"))
    moves = with_moves((_FIRST, _SECOND), ["c", "a"], 3, START + timedelta(seconds=9))
    assert moves == (RolloutMoves(2, _SECOND.time, ("b",)), later)
    assert with_moves([_FIRST], [], 3, START) == (_FIRST,)
    assert only((_FIRST, _SECOND), {"c"}) == (RolloutMoves(2, _SECOND.time, ("c",)),)


def _assessed(name: str, state: State, wave: int = 1, message: str = "") -> Assessed:
    return Assessed(_workload(name), state, START, message=message, wave=wave)


def test_counts_are_of_the_states() -> None:
    states = [state for number, state in enumerate(State, 1) for _ in range(number)]
    counts = counts_of([_assessed("w", state) for state in states], 9)
    numbers = (counts.pending, counts.moving, counts.moved, counts.held, counts.failed,
               counts.reverted)  # fmt: skip
    assert numbers == (1, 2, 3, 4, 5, 6)
    # What is no part of the rollout is not counted.
    assert (counts.total, counts.unmovable) == (21, 9)


def test_entries_begin_with_what_needs_attention() -> None:
    workloads = [
        _assessed("moved-1", State.MOVED, 1), _assessed("moved-2", State.MOVED, 2),
        _assessed("b", State.HELD), _assessed("a", State.HELD), _assessed("m", State.MOVING),
        _assessed("f", State.FAILED, message="x" * 600), _assessed("r", State.REVERTED),
        _assessed("p", State.PENDING), _assessed("o", State.OTHER),
    ]  # fmt: skip
    unmovable = [Unmovable("Pod", "d", f"pod-{number}", "y" * 600) for number in range(40)]
    entries = entries_of(workloads, unmovable)
    names = [entry.name for entry in entries]
    pods = [f"pod-{number}" for number in range(32)]
    assert names == ["r", "f", "m", "a", "b", *pods, "moved-2", "moved-1"]
    assert [(entry.kind, entry.namespace, entry.state) for entry in entries[4:6]] == [
        ("Deployment", "d", "Held"), ("Pod", "d", "Unmovable"),
    ]  # fmt: skip
    assert {len(entry.message) for entry in (entries[1], entries[5])} == {512}
    assert (entries[0].wave, entries[0].since) == (1, "2026-01-01T00:00:00Z")
    many = [_assessed(f"w{number:04}", State.MOVED) for number in range(MOST_LISTED + 1)]
    assert len(entries_of(many, [])) == MOST_LISTED


def test_a_condition_is_replaced_and_keeps_its_time_while_it_holds() -> None:
    said: dict[str, Any] = {"reason": "R", "message": "m", "generation": 3}
    one = with_condition((), "Accepted", holds=True, now=START, **said)
    one = with_condition(one, "Complete", holds=False, now=START, **said)
    later = START + timedelta(seconds=5)
    same = with_condition(one, "Accepted", holds=True, now=later, **said)
    assert [(each.type, each.status) for each in same] == [
        ("Complete", "False"), ("Accepted", "True"),
    ]  # fmt: skip
    assert same[1].last_transition_time == "2026-01-01T00:00:00Z"
    assert (same[1].reason, same[1].message, same[1].observed_generation) == ("R", "m", 3)
    changed = with_condition(same, "Accepted", holds=False, now=later, **said)
    assert changed[1].last_transition_time == "2026-01-01T00:00:05Z"
