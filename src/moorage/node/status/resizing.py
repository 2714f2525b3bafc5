"""Conditions of a pod's resize: PodResizePending and PodResizeInProgress.

Pure. Source: kubelet `status_manager.go`, KEP-1287.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from moorage.api.pods import PodCondition
from moorage.runtimeclass.resizing import DEFERRED, ERROR, IN_PROGRESS, INFEASIBLE, PENDING


@dataclass(frozen=True, slots=True)
class ResizeConditions:
    """The conditions that a pod's resize has now; None where it has none."""

    pending: PodCondition | None = None
    in_progress: PodCondition | None = None

    @classmethod
    def reported(cls, conditions: Iterable[PodCondition]) -> ResizeConditions:
        """Return the conditions that an earlier agent reported."""
        by_type = {condition.type: condition for condition in conditions}
        return cls(by_type.get(PENDING), by_type.get(IN_PROGRESS))

    @property
    def present(self) -> tuple[PodCondition, ...]:
        return tuple(one for one in (self.pending, self.in_progress) if one is not None)

    def deferred(self, reason: str, message: str, generation: int, now: str) -> ResizeConditions:
        """Return them with a resize that waits; every reason but Infeasible is Deferred."""
        reason = reason if reason == INFEASIBLE else DEFERRED
        before = self.pending
        return replace(self, pending=_condition(PENDING, before, reason, message, generation, now))

    def not_pending(self) -> ResizeConditions:
        """Return them once the pod was promised its requests."""
        return replace(self, pending=None)

    def begun(self, generation: int, now: str) -> ResizeConditions:
        """Return them with a resize that was just promised; an earlier one's error is dropped."""
        started = _condition(IN_PROGRESS, None, "", "", generation, now)
        return ResizeConditions(in_progress=started)

    def going_on(self, generation: int, now: str) -> ResizeConditions:
        """Return them with a resize in progress; an earlier error and generation stay."""
        if self.in_progress is not None:
            return self
        return replace(self, in_progress=_condition(IN_PROGRESS, None, "", "", generation, now))

    def failed(self, message: str, generation: int, now: str) -> ResizeConditions:
        """Return them with a resize that cannot be carried out now."""
        before = self.in_progress
        if before is not None:
            generation = before.observed_generation
        return replace(
            self,
            in_progress=_condition(IN_PROGRESS, before, ERROR, message, generation, now),
        )

    def done(self) -> ResizeConditions:
        """Return them once every container has its promised resources."""
        return replace(self, in_progress=None)


def is_news(before: PodCondition | None, after: PodCondition | None) -> bool:
    """Return whether a condition says something else than before, which is worth an event."""
    return _said(before) != _said(after)


def _said(condition: PodCondition | None) -> tuple[str, int] | None:
    return None if condition is None else (condition.reason, condition.observed_generation)


def _condition(
    type_: str, before: PodCondition | None, reason: str, message: str, generation: int, now: str
) -> PodCondition:
    """Return a condition; its transition time changes with its reason."""
    is_same = before is not None and before.reason == reason
    if (
        before is not None
        and is_same
        and (before.message, before.observed_generation) == (message, generation)
    ):
        return before
    since = before.last_transition_time if before is not None and is_same else now
    return PodCondition(
        type=type_,
        status="True",
        observed_generation=generation,
        last_probe_time=now,
        last_transition_time=since,
        reason=reason,
        message=message,
    )
