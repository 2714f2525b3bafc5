"""Jobs and CronJobs, as their controllers read them. Templates stay raw: they are copied.

Source: batch/v1.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from moorage.api.meta import Object, ObjectMeta, ObjectReference, Raw

# Completion indexes of Indexed Jobs in their text form: `0,2-4,7`.
#
# Source: batch/v1 API documentation of `status.completedIndexes`; `parseIndexInterval` for the
# error texts.

Interval = tuple[int, int]
"""First and last index, both included."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_NO_LIMIT = 10**18


class IndexesError(ValueError):
    """The text is not a list of ascending intervals below the number of completions."""


def parse_interval(text: str, completions: int) -> Interval:
    """Parse one interval, `3` or `3-5`. Raises IndexesError."""
    limits = text.split("-")
    if len(limits) > 2:
        raise IndexesError(
            f'the fragment "{text}" violates the requirement that an index interval can have at '
            "most two parts separated by '-'"
        )
    numbers = [_parse_index(limit, completions) for limit in limits]
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        raise IndexesError(_not_ascending(*numbers))
    return numbers[0], numbers[-1]


def parse_intervals(text: str, completions: int) -> list[Interval]:
    """Parse ascending intervals; an empty text is none. Raises IndexesError."""
    intervals: list[Interval] = []
    for part in text.split(",") if text else ():
        interval = parse_interval(part, completions)
        if intervals and intervals[-1][1] >= interval[0]:
            raise IndexesError(_not_ascending(intervals[-1][1], interval[0]))
        intervals.append(interval)
    return intervals


def readable_intervals(text: str, completions: int) -> Iterator[Interval]:
    """Yield the intervals of a text that parse, in its order; skip the others."""
    for part in text.split(",") if text else ():
        try:
            yield parse_interval(part, completions)
        except IndexesError:
            continue


def clamped_intervals(text: str, completions: int) -> list[Interval]:
    """Return the ascending, separate intervals of a text, without indexes above completions.

    Indexes that were valid may have come above when completions were lowered.
    """
    readable = readable_intervals(text, _NO_LIMIT)
    return merged(((first, min(last, completions - 1)) for first, last in readable
                   if first < completions), ())  # fmt: skip


def merged(intervals: Iterable[Interval], indexes: Iterable[int]) -> list[Interval]:
    """Return the ascending, separate intervals of all these indexes."""
    result: list[Interval] = []
    for first, last in sorted([*intervals, *((index, index) for index in indexes)]):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return result


def contains(intervals: Sequence[Interval], index: int) -> bool:
    """Return whether an index is in ascending intervals."""
    at = bisect_right(intervals, index, key=itemgetter(0))
    return at > 0 and index <= intervals[at - 1][1]


def count(intervals: Iterable[Interval]) -> int:
    """Return how many indexes the intervals hold."""
    return sum(last - first + 1 for first, last in intervals)


def format_intervals(intervals: Iterable[Interval]) -> str:
    """Format ascending intervals; two neighbours are a list, three and more a range."""
    return ",".join(
        str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}"
        for first, last in intervals
    )


def _parse_index(text: str, completions: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise IndexesError(f'cannot convert string to integer for index: "{text}"')
    index = int(text)
    if index >= completions:
        raise IndexesError(f'too large index: "{text}"')
    return index


def _not_ascending(previous: int, current: int) -> str:
    return f"non-increasing order, previous: {previous}, current: {current}"


TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
"""Finalizer of a Job's pods, removed once the pod is counted in the Job's status."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label with the completion index of an Indexed Job's pod."""

INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""Annotation with the counted failures of a pod's index before the pod."""

INDEX_IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
"""The same with those that the pod failure policy ignores."""

JOB_CONTROLLER = "kubernetes.io/job-controller"
"""The `managedBy` of Jobs that the built-in controller reconciles; so do Jobs without it."""


class ExitCodesRequirement(Object, frozen=True):
    container_name: str | None = None
    operator: str = ""
    values: tuple[int, ...] = ()


class PodConditionsPattern(Object, frozen=True):
    type: str = ""
    status: str = ""


class PodFailurePolicyRule(Object, frozen=True):
    action: str = ""
    on_exit_codes: ExitCodesRequirement | None = None
    on_pod_conditions: tuple[PodConditionsPattern, ...] = ()


class PodFailurePolicy(Object, frozen=True):
    rules: tuple[PodFailurePolicyRule, ...] = ()


class SuccessPolicyRule(Object, frozen=True):
    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(Object, frozen=True):
    rules: tuple[SuccessPolicyRule, ...] = ()


class JobSpec(Object, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    selector: Raw | None = None
    template: Raw = {}
    ttl_seconds_after_finished: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    pod_replacement_policy: str | None = None
    managed_by: str | None = None

    @property
    def is_indexed(self) -> bool:
        return self.completion_mode == "Indexed"

    @property
    def replaces_failed_only(self) -> bool:
        """Return whether a pod that is being deleted is replaced only once it has failed."""
        return self.pod_replacement_policy == "Failed"


class JobCondition(Object, frozen=True):
    type: str = ""
    status: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class UncountedTerminatedPods(Object, frozen=True):
    """Uids of ended pods that are not in the counts yet."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Object, frozen=True):
    conditions: tuple[JobCondition, ...] = ()
    start_time: str | None = None
    completion_time: str | None = None
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int | None = None
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    ready: int | None = None

    def condition(self, type_: str) -> JobCondition | None:
        """Return the condition of a type if its status is True."""
        return next(
            (
                condition
                for condition in self.conditions
                if condition.type == type_ and condition.status == "True"
            ),
            None,
        )

    @property
    def finished(self) -> JobCondition | None:
        """Return the condition Complete or Failed of a finished Job."""
        return self.condition("Complete") or self.condition("Failed")


class Job(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


SCHEDULED_TIMESTAMP = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""Annotation of a CronJob's Job with the time that it was scheduled for, as RFC 3339."""


class JobTemplateSpec(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Raw = {}


class CronJobSpec(Object, frozen=True):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = ""
    suspend: bool | None = None
    job_template: JobTemplateSpec = JobTemplateSpec()
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class CronJobStatus(Object, frozen=True):
    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(Object, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()
