"""Pods to create and to delete, so that a Job has as many active pods as it should."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from moorage.api.jobs import (
    JOB_CONTROLLER,
    TRACKING_FINALIZER,
    Interval,
    Job,
    JobCondition,
    JobStatus,
    SuccessPolicy,
    SuccessPolicyRule,
    clamped_intervals,
    count,
    merged,
)
from moorage.controllers.jobs.backoff import index_seconds_left
from moorage.controllers.jobs.failure_policy import (
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    match_failure_policy,
    new_condition,
)
from moorage.controllers.jobs.job_pods import completion_index, has_failed, restarts
from moorage.controllers.jobs.view import View
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.pods import pods_to_delete
from moorage.controllers.requests import remove_finalizer, status_patch
from moorage.wire.client.resources import JOBS
from moorage.wire.client.rest import Client

# End of a Job: which condition, if any, says that it is going to fail or to be complete.
#
# A Job that has been found to end gets an interim condition, FailureTarget or SuccessCriteriaMet;
# its pods are deleted; once all have ended and are counted, it is Failed or Complete. Source:
# KEP-3939, KEP-3329, KEP-3850, KEP-3998.


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


# Requests of the Job controllers: status updates, and the removal of pods' finalizers.


def is_managed_elsewhere(job: Job) -> bool:
    """Return whether another controller reconciles the Job (KEP-4368)."""
    return job.spec.managed_by not in (None, JOB_CONTROLLER)


async def release(client: Client, pod: Pod) -> None:
    """Remove the tracking finalizer from a pod; a pod that is gone has lost it.

    Raises StatusError or UnreachableError.
    """
    await remove_finalizer(client, PODS, pod.metadata, TRACKING_FINALIZER)


async def update_status(client: Client, job: Job, status: JobStatus) -> Job:
    """Write the status if it differs and return the Job with it.

    Raises ConflictError if the Job has changed since it was read, StatusError or UnreachableError.
    """
    if status == job.status:
        return job
    meta = job.metadata
    patch = status_patch(meta, job.status, status)
    changes: dict[str, Any] = patch["status"]
    uncounted = status.uncounted_terminated_pods
    if "uncountedTerminatedPods" in changes and uncounted is not None:
        # A merge patch keeps members that are left out.
        changes["uncountedTerminatedPods"] = {
            "succeeded": uncounted.succeeded or None,
            "failed": uncounted.failed or None,
        }
    written = await client.patch(JOBS, meta.name, patch, meta.namespace, subresource="status")
    return Job(metadata=written.metadata, spec=job.spec, status=status)


_BURST = 500


@dataclass(frozen=True, slots=True)
class Plan:
    """Pods to delete, or the completion indexes of pods to create (None: without an index).

    `wait_s`: the seconds until back-off permits the next creation, if that is what is missing.
    """

    deletions: tuple[Pod, ...] = ()
    creations: tuple[int | None, ...] = ()
    wait_s: float | None = None


def make_plan(view: View) -> Plan:
    """Return the changes of an unfinished Job's pods. Deletions come before creations."""
    if view.is_suspended:
        return Plan(deletions=view.active)
    wanted = _wanted(view)
    deletions = _surplus(view, max(0, len(view.active) - wanted))
    if deletions:
        return Plan(deletions=deletions[:_BURST])
    held = len(view.terminating) if view.spec.replaces_failed_only else 0
    missing = min(wanted - held - len(view.active), _BURST)
    if missing <= 0:
        return Plan()
    if view.failed_indexes is not None:
        return _indexes_to_retry(view, missing)
    wait_s = view.failures.seconds_left(view.now)
    if wait_s:
        return Plan(wait_s=wait_s)
    if view.spec.is_indexed:
        return Plan(creations=_pending_indexes(view, missing))
    return Plan(creations=(None,) * missing)


def _wanted(view: View) -> int:
    """Return how many pods are to be active."""
    parallelism = view.spec.parallelism or 0
    if view.spec.completions is None:
        # After a first success, a work queue only drains.
        return len(view.active) if view.succeeded else parallelism
    return max(0, min(parallelism, view.completions - view.succeeded))


def _surplus(view: View, least: int) -> tuple[Pod, ...]:
    """Return at least so many pods to delete; of an Indexed Job, all that no index needs."""
    if not view.spec.is_indexed:
        return tuple(pods_to_delete(view.active, (), least, view.now)) if least else ()
    invalid, by_index = _by_index(view)
    superfluous = list(invalid)
    left: list[Pod] = []
    for pods in by_index.values():
        doubles = pods_to_delete(pods, (), len(pods) - 1, view.now)
        superfluous += doubles
        left += [pod for pod in pods if pod not in doubles]
    if len(superfluous) < least:
        superfluous += pods_to_delete(left, (), least - len(superfluous), view.now)
    return tuple(superfluous)


def _by_index(view: View) -> tuple[list[Pod], dict[int, list[Pod]]]:
    """Return the active pods without a valid index, and the others by index."""
    invalid: list[Pod] = []
    valid: dict[int, list[Pod]] = defaultdict(list)
    for pod in view.active:
        index = completion_index(pod)
        if index is None or index >= view.completions:
            invalid.append(pod)
        else:
            valid[index].append(pod)
    return invalid, valid


def _indexes_to_retry(view: View, missing: int) -> Plan:
    """Return the indexes that back-off permits now, or the wait for the first one."""
    waits = {
        index: index_seconds_left(view.replaceable.get(index), view.now)
        for index in _pending_indexes(view, missing)
    }
    due = tuple(index for index, wait_s in waits.items() if not wait_s)
    return Plan(creations=due) if due or not waits else Plan(wait_s=min(waits.values()))


def _pending_indexes(view: View, limit: int) -> tuple[int, ...]:
    """Return the lowest indexes that neither have a pod nor have ended."""
    taken = view.active
    if view.spec.replaces_failed_only:
        taken += view.terminating
    occupied = merged(chain(view.succeeded_indexes, view.failed_indexes or ()), _indexes(taken))
    pending: list[int] = []
    candidate = 0
    for first, last in (*occupied, (view.completions, view.completions)):
        pending += range(candidate, min(first, candidate + limit - len(pending)))
        candidate = last + 1
        if len(pending) >= limit:
            break
    return tuple(pending)


def _indexes(pods: Iterable[Pod]) -> Iterable[int]:
    return (index for index in map(completion_index, pods) if index is not None)
