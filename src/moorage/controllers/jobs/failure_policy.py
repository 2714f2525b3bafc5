"""Pod failure policy: the first rule that a failed pod matches decides what its failure means.

Source: KEP-3329.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from moorage.api.clock import format_time
from moorage.api.jobs import (
    ExitCodesRequirement,
    JobCondition,
    PodFailurePolicy,
    PodFailurePolicyRule,
)
from moorage.controllers.objects import ContainerStatus, Pod

# Conditions of a Job's status.

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


@dataclass(frozen=True, slots=True)
class Match:
    """The matched rule's action, `""` without one, and why the Job fails, if the action says so."""

    action: str = ""
    failure: str = ""

    @property
    def is_counted(self) -> bool:
        """Return whether the failure counts towards the back-off limits."""
        return self.action != "Ignore"


def match_failure_policy(policy: PodFailurePolicy | None, pod: Pod) -> Match:
    """Return the policy's action for a failed pod."""
    for index, rule in enumerate(policy.rules if policy is not None else ()):
        subject = _matched_subject(rule, pod)
        if subject:
            ends_job = rule.action == "FailJob"
            sentence = f"{subject} matching FailJob rule at index {index}" if ends_job else ""
            return Match(rule.action, sentence)
    return Match()


def _matched_subject(rule: PodFailurePolicyRule, pod: Pod) -> str:
    """Return the match of pod and rule as the start of a sentence; `""` without one."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if rule.on_exit_codes is None:
        for condition in pod.status.conditions:
            if any(
                (condition.type, condition.status) == (pattern.type, pattern.status)
                for pattern in rule.on_pod_conditions
            ):
                return f"Pod {name} has condition {condition.type}"
        return ""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    for container, code in _failures(statuses):
        if _matches(rule.on_exit_codes, container, code):
            return f"Container {container} for pod {name} failed with exit code {code}"
    return ""


def _failures(statuses: Iterable[ContainerStatus]) -> Iterable[tuple[str, int]]:
    for status in statuses:
        terminated = status.state.terminated
        if terminated is not None and terminated.exit_code != 0:
            yield status.name, terminated.exit_code


def _matches(requirement: ExitCodesRequirement, container: str, code: int) -> bool:
    if requirement.container_name not in (None, container):
        return False
    return (code in requirement.values) == (requirement.operator == "In")
