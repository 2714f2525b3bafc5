"""Pod failure policy: the first rule that a failed pod matches decides what its failure means.

Source: KEP-3329.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from moorage.api.jobs import ExitCodesRequirement, PodFailurePolicy, PodFailurePolicyRule
from moorage.controllers.objects import ContainerStatus, Pod


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
