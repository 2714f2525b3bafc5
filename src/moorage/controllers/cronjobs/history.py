"""Jobs of a CronJob: which are active, which succeeded last, which are to be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from moorage.api.clock import parse_time
from moorage.api.jobs import SCHEDULED_TIMESTAMP, CronJob, CronJobSpec, Job
from moorage.controllers.jobs.conditions import COMPLETE
from moorage.controllers.ownership import controller_reference
from moorage.wire.client.resources import CRON_JOBS

_END_OF_TIME = "9999-12-31T23:59:59Z"


def expired_jobs(spec: CronJobSpec, jobs: Sequence[Job]) -> list[Job]:
    """Return the finished Jobs beyond the history limits, the oldest first."""
    return [
        *_oldest(jobs, "Complete", spec.successful_jobs_history_limit),
        *_oldest(jobs, "Failed", spec.failed_jobs_history_limit),
    ]


def _oldest(jobs: Sequence[Job], condition: str, limit: int | None) -> list[Job]:
    if limit is None:
        return []
    ended = sorted((job for job in jobs if _has_ended(job, condition)), key=_start_order)
    return ended[: max(0, len(ended) - limit)]


def _has_ended(job: Job, condition: str) -> bool:
    finished = job.status.finished
    return finished is not None and finished.type == condition


def _start_order(job: Job) -> tuple[str, str]:
    return job.status.start_time or _END_OF_TIME, job.metadata.name


def last_success(jobs: Sequence[Job], before: str | None) -> str | None:
    """Return the latest completion time of the Jobs and of what is recorded `before`."""
    times = [
        job.status.completion_time
        for job in jobs
        if _has_ended(job, COMPLETE) and job.status.completion_time is not None
    ]
    return max([*times, *([before] if before is not None else [])], default=None)


@dataclass(frozen=True, slots=True)
class Ended:
    """An active Job that has finished, and the condition that it finished with."""

    name: str
    uid: str
    condition: str


def ended_jobs(cron_job: CronJob, jobs: Sequence[Job]) -> list[Ended]:
    """Return the Jobs in the list of active ones that have finished."""
    active = {reference.uid for reference in cron_job.status.active}
    return [
        Ended(job.metadata.name, job.metadata.uid, job.status.finished.type)
        for job in jobs
        if job.status.finished is not None and job.metadata.uid in active
    ]


def job_name(cron_job: CronJob, time: datetime) -> str:
    """Return the name of the Job for a time: one for each minute, so that none is made twice."""
    return f"{cron_job.metadata.name}-{int(time.timestamp()) // 60}"


def job_of(cron_job: CronJob, time: datetime, local: datetime) -> dict[str, Any]:
    """Return the Job for a time, as JSON; `local` is that time in the CronJob's zone."""
    template = cron_job.spec.job_template
    stamp = local.isoformat().replace("+00:00", "Z")
    return {
        "metadata": {
            "name": job_name(cron_job, time),
            "namespace": cron_job.metadata.namespace,
            "labels": dict(template.metadata.labels),
            "annotations": {**template.metadata.annotations, SCHEDULED_TIMESTAMP: stamp},
            "ownerReferences": [controller_reference(CRON_JOBS, cron_job.metadata)],
        },
        "spec": template.spec,
    }


def is_processed(cron_job: CronJob, time: datetime) -> bool:
    """Return whether the Job for a time was created already."""
    last, name = cron_job.status.last_schedule_time, job_name(cron_job, time)
    if last is not None and parse_time(last) == time:
        return True
    return any(reference.name == name for reference in cron_job.status.active)
