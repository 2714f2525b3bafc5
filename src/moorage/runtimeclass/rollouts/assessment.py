"""Assessment of workloads: the state of each one in a rollout, and why.

Decided from what is true of the workload now, and from two things in the rollout's status: which
workloads were moved, and since when a workload is in its state; without it the time of the move
counts.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

import msgspec

from moorage.api.clock import parse_time
from moorage.api.durations import format_duration
from moorage.api.runtime_rollouts import RolloutGates, RolloutWorkload, RuntimeRolloutSpec
from moorage.runtimeclass.rollouts.obstacles import PodFacts, Workload
from moorage.runtimeclass.rollouts.record import Moved


class State(enum.StrEnum):
    """States of a workload, as the status spells them."""

    PENDING = "Pending"
    MOVING = "Moving"
    MOVED = "Moved"
    HELD = "Held"
    FAILED = "Failed"
    REVERTED = "Reverted"
    OTHER = "Other"
    """Not part of the rollout: another class, or none of the selectors' workloads."""


_AT_TARGET = (State.MOVING, State.MOVED, State.HELD)


class Assessed(msgspec.Struct, frozen=True):
    """A workload with its state; `due` is when time alone may change it, None if it cannot.

    `wave` is the one that it was moved in, 0 if it was not.
    """

    workload: Workload
    state: State
    since: datetime
    reason: str = ""
    message: str = ""
    due: datetime | None = None
    wave: int = 0

    @property
    def is_moved(self) -> bool:
        """Return whether the workload has the target class because of the rollout."""
        return self.state in _AT_TARGET or (
            self.state is State.FAILED and not self.workload.refusal
        )


def bears_mark(rollout_uid: str, workload: Workload) -> bool:
    """Return whether a workload's annotations name the rollout as the last that moved it."""
    return workload.mark is not None and workload.mark.rollout_uid == rollout_uid


def assess(
    rollout_uid: str,
    spec: RuntimeRolloutSpec,
    workload: Workload,
    moved: Moved | None,
    before: RolloutWorkload | None,
    now: datetime,
) -> Assessed:
    """Return the state of a workload.

    `moved` is its record in the status and `before` its entry there, None without one.
    """
    state, reason, message, due = _judge(rollout_uid, spec, workload, moved, before, now)
    wave = moved.wave if moved is not None else 0
    return Assessed(workload, state, _since(state, before, now), reason, message, due, wave)


def _judge(
    rollout_uid: str,
    spec: RuntimeRolloutSpec,
    workload: Workload,
    moved: Moved | None,
    before: RolloutWorkload | None,
    now: datetime,
) -> tuple[State, str, str, datetime | None]:
    """Return state, reason, message, and when time alone may change them."""
    if workload.class_name == spec.from_:
        is_marked = bears_mark(rollout_uid, workload)
        if moved is not None and _is_reverted(spec, moved, before, is_marked=is_marked):
            message = f"its class is {spec.from_} again, though it was moved to {spec.to}"
            return State.REVERTED, "Reverted", message, None
        if workload.refusal:
            return State.FAILED, "Refused", workload.refusal, None
        return State.PENDING, "", "", None
    if moved is None or workload.class_name != spec.to:
        return State.OTHER, "", "", None
    deadline = _deadline(spec.gates, workload, _moving_since(workload, moved, before, now))
    reason, message = _violation(spec.gates, workload, deadline, now)
    if reason:
        return State.FAILED, reason, message, None
    if not workload.is_settled:
        return State.MOVING, "", workload.note, deadline
    if workload.hold:
        return State.HELD, "Held", workload.hold, None
    return State.MOVED, "", "", None


def _since(state: State, before: RolloutWorkload | None, now: datetime) -> datetime:
    if before is None or before.state != state or before.since is None:
        return now
    return parse_time(before.since)


def _is_reverted(
    spec: RuntimeRolloutSpec, moved: Moved, before: RolloutWorkload | None, *, is_marked: bool
) -> bool:
    """Return whether someone gave a moved workload its old class back, after the last resume.

    A workload that was recorded only, before its patch was lost, bears no mark and was never seen
    with the new class.
    """
    if is_marked:
        moved_at = moved.at
    elif before is not None and before.state in _AT_TARGET and before.since is not None:
        moved_at = parse_time(before.since)
    else:
        return False
    return spec.resumed_at is None or moved_at > parse_time(spec.resumed_at)


def _moving_since(
    workload: Workload, moved: Moved, before: RolloutWorkload | None, now: datetime
) -> datetime:
    """Return from when on its next pod must become ready.

    A workload that had settled, and grows or is changed later, has its time again.
    """
    if before is None or before.since is None or before.state not in _AT_TARGET:
        return moved.at
    if before.state == State.MOVING:
        return max(moved.at, parse_time(before.since))
    return moved.at if workload.is_settled else now


def _violation(
    gates: RolloutGates, workload: Workload, deadline: datetime | None, now: datetime
) -> tuple[str, str]:
    """Return reason and message of the first gate that does not hold, or empty texts."""
    if workload.fault:
        return "WorkloadFailed", workload.fault
    for pod in workload.pods:
        if gates.max_restarts is not None and pod.restarts > gates.max_restarts:
            return "TooManyRestarts", (
                f"pod {pod.name} restarted or failed {pod.restarts} times; "
                f"{gates.max_restarts} are allowed"
            )
        latency_s = start_latency_s(pod)
        limit_s = gates.max_start_latency_seconds
        if limit_s is not None and latency_s is not None and latency_s > limit_s:
            return "SlowStart", (
                f"pod {pod.name} took {format_duration(latency_s)} from scheduled to ready; "
                f"{format_duration(limit_s)} are allowed"
            )
    if not workload.is_settled and deadline is not None and now >= deadline:
        limit_s = gates.ready_within_seconds or 0
        why = f": {workload.note}" if workload.note else ""
        return "NotReady", f"no further pod became ready within {format_duration(limit_s)}{why}"
    return "", ""


def _deadline(gates: RolloutGates, workload: Workload, since: datetime) -> datetime | None:
    if gates.ready_within_seconds is None:
        return None
    progress = [pod.ready_since for pod in workload.pods if pod.ready_since is not None]
    return max([since, *progress]) + timedelta(seconds=gates.ready_within_seconds)


def start_latency_s(pod: PodFacts) -> float | None:
    """Return the seconds from scheduled to ready.

    None for a pod that is not ready, or restarted: it may have been ready before.
    """
    if pod.ready_since is None or pod.restarts:
        return None
    return max(0.0, (pod.ready_since - (pod.scheduled or pod.created)).total_seconds())
