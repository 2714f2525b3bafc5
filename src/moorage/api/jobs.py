"""Jobs and CronJobs, as their controllers read them. Templates stay raw: they are copied.

Source: batch/v1.
"""

from __future__ import annotations

from moorage.api.meta import Object, ObjectMeta, Raw
from moorage.api.references import ObjectReference

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
