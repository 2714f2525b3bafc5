"""The state of one workload in a rollout: from its class, its record and its gates."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from moorage.api.clock import format_time
from moorage.api.runtime_rollouts import RolloutGates, RolloutWorkload, RuntimeRolloutSpec
from moorage.runtimeclass.rollouts.assessment import State, assess, start_latency_s
from moorage.runtimeclass.rollouts.obstacles import Mark, PodFacts, Workload
from moorage.runtimeclass.rollouts.record import Moved
from tests.runtimeclass.rollouts.cluster import START

_MOVED = Moved(START, 2)
_UID = "uid-r"


def _at(seconds: float) -> Any:
    return START + timedelta(seconds=seconds)


def _before(state: State, seconds: float) -> RolloutWorkload:
    since = format_time(_at(seconds))
    return RolloutWorkload(kind="Deployment", namespace="d", name="w", state=state, since=since)


def _workload(class_name: str = "new", **fields: Any) -> Workload:
    return Workload("Deployment", "d", "w", "u", class_name, **fields)


def _assess(
    workload: Workload,
    *,
    moved: Moved | None = _MOVED,
    before: RolloutWorkload | None = None,
    now_s: float = 10,
    gates: dict[str, Any] | None = None,
    resumed_s: float | None = None,
) -> Any:
    resumed_at = None if resumed_s is None else format_time(_at(resumed_s))
    spec = RuntimeRolloutSpec(
        from_="old", to="new", gates=RolloutGates(**(gates or {})), resumed_at=resumed_at
    )
    return assess(_UID, spec, workload, moved, before, _at(now_s))


def _mark(uid: str = _UID) -> Mark:
    return Mark("r", uid, "old", START, 2)


@pytest.mark.parametrize(
    ("workload", "moved", "state", "reason", "message", "is_moved", "wave"),
    [
        (_workload("old"), None, State.PENDING, "", "", False, 0),
        (_workload("old"), _MOVED, State.PENDING, "", "", False, 2),
        (_workload("old", refusal="no"), None, State.FAILED, "Refused", "no", False, 0),
        (_workload("old", mark=_mark()), _MOVED, State.REVERTED, "Reverted",
         "its class is old again, though it was moved to new", False, 2),
        (_workload("old", mark=_mark("other")), _MOVED, State.PENDING, "", "", False, 2),
        (_workload("old", mark=_mark()), None, State.PENDING, "", "", False, 0),
        (_workload("third"), _MOVED, State.OTHER, "", "", False, 2),
        (_workload("new"), None, State.OTHER, "", "", False, 0),
        (_workload("new", note="slow"), _MOVED, State.MOVING, "", "slow", True, 2),
        (_workload("new", is_settled=True), _MOVED, State.MOVED, "", "", True, 2),
        (_workload("new", is_settled=True, hold="by hand"), _MOVED, State.HELD, "Held", "by hand",
         True, 2),
        (_workload("new", fault="quota"), _MOVED, State.FAILED, "WorkloadFailed", "quota", True, 2),
    ],
)  # fmt: skip
def test_states(
    workload: Workload,
    moved: Moved | None,
    state: State,
    reason: str,
    message: str,
    *,
    is_moved: bool,
    wave: int,
) -> None:
    assessed = _assess(workload, moved=moved)
    assert (assessed.state, assessed.reason, assessed.message) == (state, reason, message)
    assert (assessed.is_moved, assessed.wave, assessed.since) == (is_moved, wave, _at(10))


@pytest.mark.parametrize(
    ("before", "now_s", "due_s"),
    [
        (None, 10, 60),
        (_before(State.PENDING, 5), 10, 60),
        (_before(State.MOVING, 5), 10, 65),
        (_before(State.MOVING, -5), 10, 60),
        # It had settled, and does not any more: its time begins now.
        (_before(State.MOVED, 5), 10, 70),
        (_before(State.HELD, 5), 10, 70),
    ],
)
def test_the_time_to_become_ready_begins_with_the_state(
    before: RolloutWorkload | None, now_s: float, due_s: float
) -> None:
    assessed = _assess(_workload(), before=before, now_s=now_s, gates={"ready_within_seconds": 60})
    assert assessed.due == _at(due_s)


def test_a_ready_pod_gives_the_next_its_time() -> None:
    pods = (PodFacts("a", START, START, _at(20)), PodFacts("b", START))
    gates = {"ready_within_seconds": 60}
    assert _assess(_workload(pods=pods), now_s=30, gates=gates).due == _at(80)
    without = {"ready_within_seconds": None}
    assert _assess(_workload(pods=pods), now_s=30, gates=without).due is None
    assert _assess(_workload(pods=pods, is_settled=True), now_s=30, gates=gates).due is None


@pytest.mark.parametrize(
    ("now_s", "note", "state", "message"),
    [
        (59, "no room", State.MOVING, "no room"),
        (60, "no room", State.FAILED, "no further pod became ready within 1m0s: no room"),
        (60, "", State.FAILED, "no further pod became ready within 1m0s"),
    ],
)
def test_what_is_not_ready_in_time_has_failed(
    now_s: float, note: str, state: State, message: str
) -> None:
    gates = {"ready_within_seconds": 60}
    assessed = _assess(_workload(note=note), now_s=now_s, gates=gates)
    assert (assessed.state, assessed.message) == (state, message)
    settled = _assess(_workload(is_settled=True), now_s=now_s, gates=gates)
    assert settled.state is State.MOVED


@pytest.mark.parametrize(
    ("pod", "reason", "message"),
    [
        (PodFacts("p", START, START, _at(5), 2), "", ""),
        (PodFacts("p", START, START, _at(5), 3), "TooManyRestarts",
         "pod p restarted or failed 3 times; 2 are allowed"),
        (PodFacts("p", START, START, _at(7)), "", ""),
        (PodFacts("p", START, START, _at(8)), "SlowStart",
         "pod p took 8s from scheduled to ready; 7s are allowed"),
        # It may have been ready before.
        (PodFacts("p", START, START, _at(8), 1), "", ""),
        (PodFacts("p", START, START), "", ""),
    ],
)  # fmt: skip
def test_gates_of_pods(pod: PodFacts, reason: str, message: str) -> None:
    gates = {"max_restarts": 2, "max_start_latency_seconds": 7}
    good = PodFacts("good", START, START, _at(1))
    assessed = _assess(_workload(pods=(good, pod), is_settled=True), gates=gates)
    assert (assessed.reason, assessed.message) == (reason, message)
    assert _assess(_workload(pods=(pod,), is_settled=True)).state is State.MOVED


def test_the_start_of_a_pod_is_from_scheduled_or_created_to_ready() -> None:
    assert start_latency_s(PodFacts("p", START, _at(2), _at(5))) == 3
    assert start_latency_s(PodFacts("p", START, None, _at(5))) == 5
    assert start_latency_s(PodFacts("p", START, _at(6), _at(5))) == 0


@pytest.mark.parametrize(
    ("mark", "before", "resumed_s", "state"),
    [
        # Without a mark it counts as moved only if it was seen with the new class.
        (None, _before(State.MOVED, 5), None, State.REVERTED),
        (None, _before(State.MOVING, 5), None, State.REVERTED),
        (None, _before(State.HELD, 5), None, State.REVERTED),
        (None, _before(State.PENDING, 5), None, State.PENDING),
        (None, _before(State.MOVED, 5), 4, State.REVERTED),
        (None, _before(State.MOVED, 5), 5, State.PENDING),
        (_mark(), None, -1, State.REVERTED),
        (_mark(), None, 0, State.PENDING),
    ],
)
def test_a_class_that_went_back_counts_until_the_next_resume(
    mark: Mark | None, before: RolloutWorkload | None, resumed_s: float | None, state: State
) -> None:
    workload = _workload("old", mark=mark)
    assert _assess(workload, before=before, resumed_s=resumed_s).state is state


def test_a_state_lasts_since_it_was_first_seen() -> None:
    workload = _workload("new", is_settled=True)
    assert _assess(workload, before=_before(State.MOVED, 5)).since == _at(5)
    assert _assess(workload, before=_before(State.MOVING, 5)).since == _at(10)
