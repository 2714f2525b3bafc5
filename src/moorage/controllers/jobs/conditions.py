"""Conditions of a Job's status."""

from __future__ import annotations

from datetime import datetime

from moorage.api.clock import format_time
from moorage.api.jobs import JobCondition

COMPLETE = "Complete"
FAILED = "Failed"
FAILURE_TARGET = "FailureTarget"
"""The Job is going to fail: its pods are still to end."""
SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"
"""The Job is going to be complete: its pods are still to end."""
SUSPENDED = "Suspended"

Conditions = tuple[JobCondition, ...]


def new_condition(
    type_: str, reason: str, message: str, now: datetime, status: str = "True"
) -> JobCondition:
    """Return a condition that changed now."""
    time = format_time(now)
    return JobCondition(
        type=type_,
        status=status,
        last_probe_time=time,
        last_transition_time=time,
        reason=reason,
        message=message,
    )


def with_condition(conditions: Conditions, new: JobCondition) -> Conditions:
    """Return the conditions with a new one in place of its type's.

    The old tuple is returned if nothing but times differ, or if a condition that never was would
    become False.
    """
    for index, old in enumerate(conditions):
        if old.type != new.type:
            continue
        if (old.status, old.reason, old.message) == (new.status, new.reason, new.message):
            return conditions
        return (*conditions[:index], new, *conditions[index + 1 :])
    return conditions if new.status == "False" else (*conditions, new)


def final_condition(interim: JobCondition, now: datetime) -> JobCondition:
    """Return Failed for FailureTarget and Complete for SuccessCriteriaMet."""
    type_ = FAILED if interim.type == FAILURE_TARGET else COMPLETE
    return new_condition(type_, interim.reason, interim.message, now)
