"""End of a Job: which condition, if any, says that it is going to fail or to be complete.

A Job that has been found to end gets an interim condition, FailureTarget or SuccessCriteriaMet; its
pods are deleted; once all have ended and are counted, it is Failed or Complete. Source: KEP-3939,
KEP-3329, KEP-3850, KEP-3998.
"""

from __future__ import annotations

from collections.abc import Sequence

from moorage.api.completion_indexes import Interval, clamped_intervals, count
from moorage.api.jobs import JobCondition, SuccessPolicy, SuccessPolicyRule
from moorage.controllers.jobs.conditions import FAILURE_TARGET, SUCCESS_CRITERIA_MET, new_condition
from moorage.controllers.jobs.failure_policy import match_failure_policy
from moorage.controllers.jobs.job_pods import has_failed, restarts
from moorage.controllers.jobs.view import View


def interim_condition(view: View) -> JobCondition | None:
    """Return why the Job ends now, whatever its pods do; None if it goes on."""
    status = view.job.status
    return (
        status.condition(SUCCESS_CRITERIA_MET)
        or status.condition(FAILURE_TARGET)
        or _failed_by_policy(view)
        or _failed_by_limit(view)
        or _failed_by_indexes(view)
        or _succeeded_by_policy(view)
    )


def completed_condition(view: View, active: int) -> JobCondition | None:
    """Return the condition of a Job whose pods have succeeded often enough; None if not yet.

    A work queue is complete when one pod has succeeded and all have ended. `active`: the number of
    pods that still run.
    """
    wanted = 1 if view.spec.completions is None else view.spec.completions
    if active or view.succeeded < wanted:
        return None
    message = "Reached expected number of succeeded pods"
    return new_condition(SUCCESS_CRITERIA_MET, "CompletionsReached", message, view.now)


def _failed_by_policy(view: View) -> JobCondition | None:
    policy = view.spec.pod_failure_policy
    if policy is None:
        return None
    for pod in view.pods:
        if has_failed(pod, view.spec):
            match = match_failure_policy(policy, pod)
            if match.failure:
                return _failure(view, "PodFailurePolicy", match.failure)
    return None


def _failed_by_limit(view: View) -> JobCondition | None:
    limit = view.spec.backoff_limit or 0
    if view.failed > limit or _has_restarted_too_often(view, limit):
        message = "Job has reached the specified backoff limit"
        return _failure(view, "BackoffLimitExceeded", message)
    if view.deadline is not None and view.now >= view.deadline:
        return _failure(view, "DeadlineExceeded", "Job was active longer than specified deadline")
    return None


def _has_restarted_too_often(view: View, limit: int) -> bool:
    """Return whether the containers of pods that restart in place reach the back-off limit."""
    if (view.spec.template.get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    return restarts(view.pods) >= max(1, limit)


def _failed_by_indexes(view: View) -> JobCondition | None:
    if view.failed_indexes is None:
        return None
    failed, most = count(view.failed_indexes), view.spec.max_failed_indexes
    if most is not None and failed > most:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return _failure(view, "MaxFailedIndexesExceeded", message)
    if failed and failed + count(view.succeeded_indexes) >= view.completions:
        return _failure(view, "FailedIndexes", "Job has failed indexes")
    return None


def _succeeded_by_policy(view: View) -> JobCondition | None:
    if not view.spec.is_indexed:
        return None
    rule = matched_rule(view.spec.success_policy, view.completions, view.succeeded_indexes)
    if rule is None:
        return None
    message = f"Matched rules at index {rule}"
    return new_condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", message, view.now)


def _failure(view: View, reason: str, message: str) -> JobCondition:
    return new_condition(FAILURE_TARGET, reason, message, view.now)


# Success policy: which completion indexes are enough for an Indexed Job. Source: KEP-3998.


def matched_rule(
    policy: SuccessPolicy | None, completions: int, succeeded: Sequence[Interval]
) -> int | None:
    """Return the position of the first rule that the succeeded indexes meet; None without one."""
    if policy is None or not succeeded:
        return None
    for position, rule in enumerate(policy.rules):
        if _is_met(rule, completions, succeeded):
            return position
    return None


def _is_met(rule: SuccessPolicyRule, completions: int, succeeded: Sequence[Interval]) -> bool:
    if rule.succeeded_indexes is None:
        return rule.succeeded_count is not None and count(succeeded) >= rule.succeeded_count
    required = clamped_intervals(rule.succeeded_indexes, completions)
    if not required:
        return False
    met = _common(required, succeeded)
    enough = count(required) if rule.succeeded_count is None else rule.succeeded_count
    return met == count(required) or met >= enough


def _common(one: Sequence[Interval], other: Sequence[Interval]) -> int:
    """Return how many indexes two ascending sequences of intervals have in common."""
    total, at, other_at = 0, 0, 0
    while at < len(one) and other_at < len(other):
        (first, last), (other_first, other_last) = one[at], other[other_at]
        total += max(0, min(last, other_last) - max(first, other_first) + 1)
        if last <= other_last:
            at += 1
        else:
            other_at += 1
    return total
