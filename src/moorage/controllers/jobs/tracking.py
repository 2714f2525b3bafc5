"""Counting of ended pods, each exactly once.

An ended pod is first named in `uncountedTerminatedPods`, then loses its finalizer, and only then is
counted; a controller that dies between any two of these steps goes on from what the status and the
finalizers say. The success of an index is recorded in `completedIndexes` alone. Source: KEP-2307.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from moorage.api.jobs import (
    JobCondition,
    JobStatus,
    UncountedTerminatedPods,
    contains,
    count,
    format_intervals,
    merged,
)
from moorage.controllers.jobs.failure_policy import (
    FAILURE_TARGET,
    match_failure_policy,
    with_condition,
)
from moorage.controllers.jobs.job_pods import completion_index, has_failed, has_valid_index
from moorage.controllers.jobs.view import View
from moorage.controllers.objects import Pod

_MAX_UNCOUNTED = 500
"""Limit of the pods that one reconcile counts, which bounds the status."""


@dataclass(frozen=True, slots=True)
class Tracking:
    """The status to write first, then the pods to release from their finalizer.

    `is_whole`: whether no ended pod was left for a later reconcile.
    """

    status: JobStatus
    released: tuple[Pod, ...]
    is_whole: bool


def track(view: View, status: JobStatus, interim: JobCondition | None) -> Tracking:
    """Return which pods are to be counted.

    `status`: the new status but for counts. `interim`: the condition of a Job that ends.
    """
    held = {pod.metadata.uid for pod in view.pods if view.is_uncounted(pod)}
    status = with_counts(status, held)
    uncounted = status.uncounted_terminated_pods or UncountedTerminatedPods()
    succeeded, failed = list(uncounted.succeeded), list(uncounted.failed)
    new_indexes: list[int] = []
    released: list[Pod] = []
    is_whole = True
    for pod in sorted(view.pods, key=lambda pod: completion_index(pod) or 0):
        if not (view.is_uncounted(pod) and _may_release(view, pod, interim)):
            continue
        released.append(pod)
        uid = pod.metadata.uid
        if pod.status.phase == "Succeeded" and uid not in view.uncounted.failed:
            index = completion_index(pod)
            if not view.spec.is_indexed:
                if uid not in succeeded:
                    succeeded.append(uid)
            elif _is_new(view, pod) and index is not None:
                new_indexes.append(index)
        elif _counts_as_failed(view, pod, interim) and uid not in failed:
            failed.append(uid)
        if len(new_indexes) + len(succeeded) + len(failed) >= _MAX_UNCOUNTED:
            is_whole = False
            break
    status = msgspec.structs.replace(
        status,
        uncounted_terminated_pods=UncountedTerminatedPods(
            succeeded=tuple(succeeded), failed=tuple(failed)
        ),
    )
    if view.spec.is_indexed:
        status = _with_indexes(view, status, new_indexes)
    if interim is not None:
        conditions = with_condition(status.conditions, interim)
        status = msgspec.structs.replace(status, conditions=conditions)
    return Tracking(status, tuple(released), is_whole)


def with_counts(status: JobStatus, held: Collection[str]) -> JobStatus:
    """Count the uncounted pods that have lost their finalizer.

    `held`: the uids of the pods that still have it.
    """
    uncounted = status.uncounted_terminated_pods or UncountedTerminatedPods()
    succeeded = tuple(uid for uid in uncounted.succeeded if uid in held)
    failed = tuple(uid for uid in uncounted.failed if uid in held)
    return msgspec.structs.replace(
        status,
        succeeded=status.succeeded + len(uncounted.succeeded) - len(succeeded),
        failed=status.failed + len(uncounted.failed) - len(failed),
        uncounted_terminated_pods=UncountedTerminatedPods(succeeded=succeeded, failed=failed),
    )


def _may_release(view: View, pod: Pod, interim: JobCondition | None) -> bool:
    is_ending = view.job.metadata.deletion_timestamp is not None or interim is not None
    if is_ending or pod.status.phase == "Succeeded":
        return True
    if not has_failed(pod, view.spec):
        return False
    index = completion_index(pod)
    kept = view.replaceable.get(index) if index is not None else None
    return kept is None or kept.metadata.uid != pod.metadata.uid


def _is_new(view: View, pod: Pod) -> bool:
    """Return whether the pod's index has succeeded for the first time."""
    index = completion_index(pod)
    assert index is None or index >= 0
    return (
        index is not None
        and has_valid_index(pod, view.spec)
        and not contains(view.reported_indexes, index)
    )


def _counts_as_failed(view: View, pod: Pod, interim: JobCondition | None) -> bool:
    """Return whether the pod is a failure: of a Job that fails, so are the pods that still ran."""
    fails = interim is not None and interim.type == FAILURE_TARGET
    if not (has_failed(pod, view.spec) or fails):
        return False
    if view.spec.is_indexed and not has_valid_index(pod, view.spec):
        return False
    return match_failure_policy(view.spec.pod_failure_policy, pod).is_counted


def _with_indexes(view: View, status: JobStatus, new: list[int]) -> JobStatus:
    succeeded = merged(view.succeeded_indexes, new)
    failed = None if view.failed_indexes is None else format_intervals(view.failed_indexes)
    return msgspec.structs.replace(
        status,
        succeeded=count(succeeded),
        completed_indexes=format_intervals(succeeded),
        failed_indexes=failed,
    )
