"""A Job, its pods, and what follows from them: the input of every decision of a reconcile."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from moorage.api.clock import parse_time
from moorage.api.jobs import (
    Interval,
    Job,
    JobSpec,
    UncountedTerminatedPods,
    clamped_intervals,
    contains,
    count,
    merged,
)
from moorage.controllers.jobs.backoff import Failures
from moorage.controllers.jobs.failure_policy import match_failure_policy
from moorage.controllers.jobs.job_pods import (
    all_index_failures,
    completion_index,
    finish_time,
    has_failed,
    has_valid_index,
    index_failures,
    is_tracked,
)
from moorage.controllers.objects import Pod
from moorage.controllers.pods import is_active, is_terminating


@dataclass(frozen=True)
class View:
    """What a reconcile knows.

    `pods`: all pods of the Job. `counted`: uids of pods that are counted already although the
    informer still shows their finalizer. `earlier_failures`: the back-off record so far.
    """

    job: Job
    pods: tuple[Pod, ...]
    counted: Collection[str]
    earlier_failures: Failures
    now: datetime

    @property
    def spec(self) -> JobSpec:
        return self.job.spec

    @property
    def completions(self) -> int:
        """Return the completions; 0 for a work queue, which has none."""
        return self.spec.completions or 0

    @property
    def is_suspended(self) -> bool:
        return bool(self.spec.suspend)

    @cached_property
    def start_time(self) -> datetime | None:
        """Return when the Job started, which may be now; None while it is suspended unstarted."""
        if self.job.status.start_time is not None:
            return parse_time(self.job.status.start_time)
        return None if self.is_suspended else self.now

    @property
    def deadline(self) -> datetime | None:
        """Return when the Job's active deadline passes; None without one and while suspended."""
        seconds = self.spec.active_deadline_seconds
        if seconds is None or self.start_time is None or self.is_suspended:
            return None
        return self.start_time + timedelta(seconds=seconds)

    @cached_property
    def uncounted(self) -> UncountedTerminatedPods:
        return self.job.status.uncounted_terminated_pods or UncountedTerminatedPods()

    @cached_property
    def active(self) -> tuple[Pod, ...]:
        return tuple(filter(is_active, self.pods))

    @cached_property
    def terminating(self) -> tuple[Pod, ...]:
        return tuple(filter(is_terminating, self.pods))

    def is_uncounted(self, pod: Pod) -> bool:
        """Return whether the pod is still to be counted."""
        return is_tracked(pod) and pod.metadata.uid not in self.counted

    @cached_property
    def newly_succeeded(self) -> tuple[Pod, ...]:
        """Return the succeeded pods that the status does not name yet."""
        return tuple(
            pod
            for pod in self._countable()
            if pod.status.phase == "Succeeded" and pod.metadata.uid not in self.uncounted.succeeded
        )

    @cached_property
    def newly_failed(self) -> tuple[Pod, ...]:
        """Return the failed pods that the status does not name yet."""
        return tuple(
            pod
            for pod in self._countable()
            if has_failed(pod, self.spec) and pod.metadata.uid not in self.uncounted.failed
        )

    def _countable(self) -> Iterator[Pod]:
        for pod in self.pods:
            is_valid = not self.spec.is_indexed or has_valid_index(pod, self.spec)
            if is_valid and self.is_uncounted(pod):
                yield pod

    @cached_property
    def failures(self) -> Failures:
        """Return the back-off record with the newly ended pods."""
        return self.earlier_failures.after(self.newly_succeeded, self.newly_failed)

    @cached_property
    def succeeded(self) -> int:
        """Return the number of succeeded pods, or of succeeded indexes of an Indexed Job."""
        if self.spec.is_indexed:
            return count(self.succeeded_indexes)
        earlier = self.job.status.succeeded + len(self.uncounted.succeeded)
        return earlier + len(self.newly_succeeded)

    @cached_property
    def failed(self) -> int:
        """Return the number of failures that count towards the back-off limit."""
        policy = self.spec.pod_failure_policy
        new = sum(match_failure_policy(policy, pod).is_counted for pod in self.newly_failed)
        return self.job.status.failed + len(self.uncounted.failed) + new

    @cached_property
    def reported_indexes(self) -> list[Interval]:
        """Return the succeeded indexes that the status has already."""
        return clamped_intervals(self.job.status.completed_indexes, self.completions)

    @cached_property
    def succeeded_indexes(self) -> list[Interval]:
        new = (
            completion_index(pod)
            for pod in self.pods
            if pod.status.phase == "Succeeded"
            and is_tracked(pod)
            and has_valid_index(pod, self.spec)
        )
        return merged(self.reported_indexes, (index for index in new if index is not None))

    @cached_property
    def failed_indexes(self) -> list[Interval] | None:
        """Return the indexes that will not be tried again; None without a limit per index."""
        if self.spec.backoff_limit_per_index is None or not self.spec.is_indexed:
            return None
        earlier = clamped_intervals(self.job.status.failed_indexes or "", self.completions)
        new = (
            completion_index(pod)
            for pod in self.pods
            if is_tracked(pod) and has_valid_index(pod, self.spec) and self._ends_index(pod)
        )
        return merged(earlier, (index for index in new if index is not None))

    def _ends_index(self, pod: Pod) -> bool:
        """Return whether the pod's failure is the last that its index may have."""
        if not has_failed(pod, self.spec):
            return False
        match = match_failure_policy(self.spec.pod_failure_policy, pod)
        if match.action == "FailIndex":
            return True
        limit = self.spec.backoff_limit_per_index or 0
        return match.is_counted and index_failures(pod) >= limit

    @cached_property
    def replaceable(self) -> dict[int, Pod]:
        """Return, by index, the last failed pod of each index that is to be tried again.

        These keep their finalizer until the replacement, which takes over their failure count.
        """
        last: dict[int, Pod] = {}
        if self.failed_indexes is None:
            return last
        active = {completion_index(pod) for pod in self.active}
        for pod in self._countable():
            index = completion_index(pod)
            if index is None or index in active or not has_failed(pod, self.spec):
                continue
            if contains(self.succeeded_indexes, index) or contains(self.failed_indexes, index):
                continue
            if index not in last or _is_later(pod, last[index]):
                last[index] = pod
        return last


def _is_later(pod: Pod, other: Pod) -> bool:
    has_as_many = all_index_failures(pod) >= all_index_failures(other)
    return has_as_many and finish_time(pod) >= finish_time(other)
