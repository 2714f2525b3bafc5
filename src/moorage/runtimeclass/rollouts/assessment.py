"""Assessment of workloads: the state of each one in a rollout, and why.

Decided from what is true of the workload now. `since` of a state is the only thing kept, in the
status; without it the time of the move counts.
"""

from __future__ import annotations

import enum
from datetime import datetime, timedelta

import msgspec

from moorage.api.clock import parse_time
from moorage.api.durations import format_duration
from moorage.api.runtime_rollouts import RolloutGates, RolloutWorkload, RuntimeRolloutSpec
from moorage.runtimeclass.rollouts.workloads import Mark, PodFacts, Workload


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
    """A workload with its state; `due` is when time alone may change it, None if it cannot."""

    workload: Workload
    state: State
    since: datetime
    reason: str = ""
    message: str = ""
    due: datetime | None = None

    @property
    def is_moved(self) -> bool:
        """Return whether the workload has the target class because of the rollout."""
        return self.state in _AT_TARGET or (
            self.state is State.FAILED and not self.workload.refusal
        )


def mark_of(rollout: str, spec: RuntimeRolloutSpec, workload: Workload) -> Mark | None:
    """Return the workload's mark if it was made by this rollout."""
    mark = workload.mark
    if mark is None or mark.rollout != rollout or mark.moved_from != spec.from_:
        return None
    return mark


def assess(
    rollout: str,
    spec: RuntimeRolloutSpec,
    workload: Workload,
    before: RolloutWorkload | None,
    now: datetime,
) -> Assessed:
    """Return the state of a workload. `before` is its entry in the status, None without one."""
    state, reason, message, due = _judge(rollout, spec, workload, before, now)
    return Assessed(workload, state, _since(state, before, now), reason, message, due)


def _judge(
    rollout: str,
    spec: RuntimeRolloutSpec,
    workload: Workload,
    before: RolloutWorkload | None,
    now: datetime,
) -> tuple[State, str, str, datetime | None]:
    """Return state, reason, message, and when time alone may change them."""
    mark = mark_of(rollout, spec, workload)
    if workload.class_name == spec.from_:
        if _is_reverted(spec, mark, before):
            message = f"its class is {spec.from_} again, though it was moved to {spec.to}"
            return State.REVERTED, "Reverted", message, None
        if workload.refusal:
            return State.FAILED, "Refused", workload.refusal, None
        return State.PENDING, "", "", None
    if mark is None or workload.class_name != spec.to:
        return State.OTHER, "", "", None
    deadline = _deadline(spec.gates, workload, _moving_since(workload, mark, before, now))
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
    spec: RuntimeRolloutSpec, mark: Mark | None, before: RolloutWorkload | None
) -> bool:
    """Return whether someone gave a moved workload its old class back, after the last resume."""
    if mark is not None:
        moved_at = mark.moved_at
    elif before is not None and before.state in _AT_TARGET and before.since is not None:
        moved_at = parse_time(before.since)
    else:
        return False
    return spec.resumed_at is None or moved_at > parse_time(spec.resumed_at)


def _moving_since(
    workload: Workload, mark: Mark, before: RolloutWorkload | None, now: datetime
) -> datetime:
    """Return from when on its next pod must become ready.

    A workload that had settled, and grows or is changed later, has its time again.
    """
    if before is None or before.since is None or before.state not in _AT_TARGET:
        return mark.moved_at
    if before.state == State.MOVING:
        return max(mark.moved_at, parse_time(before.since))
    return mark.moved_at if workload.is_settled else now


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
