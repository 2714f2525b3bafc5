"""Validation of a Job's status: what its controller, ours or another, may write.

Rules apply to fields that change: a specification that changed first, such as fewer completions,
may leave a status that is no longer valid. Source: batch validation and
`getStatusValidationOptions` of the Job strategy, Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import jobs as completion_indexes
from moorage.api.clock import parse_time
from moorage.api.errors import FieldError
from moorage.api.jobs import IndexesError
from moorage.apiserver.registry.declare.rules import each_field, not_negative, validator
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.jobs import is_indexed

_count_errors = validator(
    *each_field("status", ("active", "succeeded", "failed", "ready", "terminating"), not_negative)
)
_UNCOUNTED = ("succeeded", "failed")
_CONDITIONS = "status.conditions"


def has_condition(status: Obj, type_: str, value: str = "True") -> bool:
    """Return whether the status has a condition of that type and value."""
    return any(
        condition.get("type") == type_ and condition.get("status") == value
        for condition in status.get("conditions", ())
    )


def validate_job_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a status update of a Job."""
    change = _Change(new, old)
    return [
        *_count_errors(new),
        *_uncounted_errors(change.status),
        *_condition_errors(change),
        *_time_errors(change),
        *_finished_errors(change),
        *_index_errors(change),
        *_ready_errors(change),
        *_success_errors(change),
        *_transition_errors(change),
    ]


class _Change:
    """The old and the new status, and which parts differ."""

    def __init__(self, new: Obj, old: Obj) -> None:
        self.spec = new["spec"]
        self.status: Obj = new.get("status", {})
        self.was: Obj = old.get("status", {})

    def differs(self, *fields: str) -> bool:
        return any(self.status.get(field) != self.was.get(field) for field in fields)

    def has(self, condition: str) -> bool:
        return has_condition(self.status, condition)

    def had(self, condition: str) -> bool:
        return has_condition(self.was, condition)

    def turns(self, *conditions: str) -> bool:
        return any(self.has(condition) != self.had(condition) for condition in conditions)

    @property
    def is_finished(self) -> bool:
        return self.has("Complete") or self.has("Failed")

    @property
    def finish_turns(self) -> bool:
        return self.is_finished != (self.had("Complete") or self.had("Failed"))


def _uncounted_errors(status: Obj) -> Iterator[FieldError]:
    seen: set[str] = set()
    for field in _UNCOUNTED:
        for index, uid in enumerate(status.get("uncountedTerminatedPods", {}).get(field, ())):
            path = f"status.uncountedTerminatedPods.{field}[{index}]"
            if not uid:
                yield FieldError.invalid(path, uid, "must not be empty")
            elif uid in seen:
                yield FieldError.duplicate(path, uid)
            seen.add(uid)


def _condition_errors(change: _Change) -> Iterator[FieldError]:
    if not change.has("Complete"):
        return
    if change.has("Failed") and change.turns("Complete", "Failed"):
        yield _conflict("cannot set Complete=True and Failed=true conditions")
    if change.has("FailureTarget") and change.turns("Complete", "FailureTarget"):
        yield _conflict("cannot set Complete=True and FailureTarget=true conditions")


def _time_errors(change: _Change) -> Iterator[FieldError]:
    status, path = change.status, "status.completionTime"
    start, end = status.get("startTime"), status.get("completionTime")
    is_complete = change.has("Complete")
    if change.turns("Complete") or change.differs("completionTime"):
        if end is not None and not is_complete:
            detail = "cannot set completionTime when there is no Complete=True condition"
            yield FieldError.invalid(path, end, detail)
        if end is None and is_complete:
            yield FieldError.required(path, "completionTime is required for Complete jobs")
    ends_early = start is not None and end is not None and parse_time(end) < parse_time(start)
    if ends_early and change.differs("startTime", "completionTime"):
        yield FieldError.invalid(path, end, "must be equal to or after `startTime`")


def _finished_errors(change: _Change) -> Iterator[FieldError]:
    without_target = change.has("Failed") and not change.has("FailureTarget")
    if without_target and (change.turns("Failed") or change.differs("failedIndexes")):
        yield _conflict("cannot set Failed=True condition without the FailureTarget=true condition")
    without_success = change.has("Complete") and not change.has("SuccessCriteriaMet")
    if without_success and change.turns("Complete", "SuccessCriteriaMet"):
        yield _conflict(
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        )
    if change.is_finished:
        yield from _remainder_errors(change)


def _remainder_errors(change: _Change) -> Iterator[FieldError]:
    """Report what a finished Job cannot have."""
    status, turns = change.status, change.finish_turns
    active = status.get("active", 0)
    if active > 0 and (turns or change.differs("active")):
        yield FieldError.invalid("status.active", active, "active>0 is invalid for finished job")
    never_started = change.spec["suspend"] and change.spec.get("completions") == 0
    if "startTime" not in status and not never_started and (turns or change.differs("startTime")):
        yield FieldError.required("status.startTime", "startTime is required for finished job")
    uncounted = status.get("uncountedTerminatedPods", {})
    if any(uncounted.get(field) for field in _UNCOUNTED) and (
        turns or change.differs("uncountedTerminatedPods")
    ):
        shown = {field.capitalize(): uncounted.get(field) for field in _UNCOUNTED}
        yield FieldError.invalid(
            "status.uncountedTerminatedPods", shown, "must be empty for finished job"
        )


def _index_errors(change: _Change) -> Iterator[FieldError]:
    status, spec = change.status, change.spec
    completed, failed = status.get("completedIndexes", ""), status.get("failedIndexes")
    completions, has_limit = spec.get("completions"), "backoffLimitPerIndex" in spec
    completed_differ = change.differs("completedIndexes")
    failed_differ = failed is not None and change.differs("failedIndexes")
    if completed_differ and completions is not None:
        yield from _format_errors("completedIndexes", completed, completions)
    if failed_differ and completions is not None and has_limit:
        yield from _format_errors("failedIndexes", failed or "", completions)
    if completed_differ and completed and not is_indexed(spec):
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield FieldError.invalid("status.completedIndexes", completed, detail)
    if failed_differ and not has_limit:
        detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield FieldError.invalid("status.failedIndexes", failed, detail)
    if (completed_differ or failed_differ) and failed is not None and completions is not None:
        yield from _overlap_errors(completed, failed, completions)


def _format_errors(field: str, text: str, completions: int) -> Iterator[FieldError]:
    try:
        completion_indexes.parse_intervals(text, completions)
    except IndexesError as error:
        yield FieldError.invalid(f"status.{field}", text, f"error parsing {field}: {error}")


def _overlap_errors(completed: str, failed: str, completions: int) -> Iterator[FieldError]:
    theirs = completion_indexes.readable_intervals(failed, completions)
    other = next(theirs, None)
    for first, last in completion_indexes.readable_intervals(completed, completions):
        while other is not None and other[1] < first:
            other = next(theirs, None)
        if other is not None and other[0] <= last:
            index = max(first, other[0])
            yield FieldError.invalid(
                "status.failedIndexes",
                failed,
                f"failedIndexes and completedIndexes overlap at index: {index}",
            )
            return


def _ready_errors(change: _Change) -> Iterator[FieldError]:
    status = change.status
    terminating, ready = status.get("terminating"), status.get("ready", 0)
    turns = change.finish_turns or change.differs("terminating")
    if terminating and change.is_finished and turns:
        detail = "terminating>0 is invalid for finished job"
        yield FieldError.invalid("status.terminating", terminating, detail)
    if change.differs("ready", "active") and ready > status.get("active", 0):
        yield FieldError.invalid("status.ready", ready, "cannot set more ready pods than active")


def _success_errors(change: _Change) -> Iterator[FieldError]:
    is_met = change.has("SuccessCriteriaMet")
    if is_met and change.has("Failed"):
        yield _conflict("cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if is_met and change.has("FailureTarget"):
        yield _conflict("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if "successPolicy" in change.spec and not is_met and change.has("Complete"):
        yield _conflict(
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        )


def _transition_errors(change: _Change) -> Iterator[FieldError]:
    status, was, spec = change.status, change.was, change.spec
    for condition in ("Failed", "Complete", "FailureTarget"):
        if change.had(condition) and not change.has(condition):
            yield _conflict(f"cannot disable the terminal {condition}=True condition")
    scales_down = is_indexed(spec) and spec.get("completions") == spec.get("parallelism")
    for field in ("failed",) if scales_down else ("failed", "succeeded"):
        if status.get(field, 0) < was.get(field, 0):
            yield _invalid(status, field, 0, f"cannot decrease the {field} counter")
    both_ended = "completionTime" in status and "completionTime" in was
    if both_ended and change.differs("completionTime"):
        yield _invalid(status, "completionTime", None, "field is immutable")
    resumes = change.had("Suspended") and has_condition(status, "Suspended", "False")
    if "startTime" in was and change.differs("startTime") and not resumes and not spec["suspend"]:
        yield _invalid(status, "startTime", None, "field is immutable for unsuspended job once set")
    if change.had("SuccessCriteriaMet") and not change.has("SuccessCriteriaMet"):
        yield _conflict("cannot disable the SuccessCriteriaMet=True condition")
    elif change.had("Complete") and change.turns("SuccessCriteriaMet"):
        yield _conflict(
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        )


def _invalid(status: Obj, field: str, zero: Any, detail: str) -> FieldError:
    return FieldError.invalid(f"status.{field}", status.get(field, zero), detail)


def _conflict(detail: str) -> FieldError:
    return FieldError(_CONDITIONS, "FieldValueInvalid", f"Invalid value: {detail}")
