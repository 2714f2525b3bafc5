"""CronJob controller: Jobs at scheduled times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.cron import (
    Schedule,
    ScheduleError,
    UnknownTimeZoneError,
    count_due,
    load_zone,
    parse_schedule,
)
from moorage.api.errors import AlreadyExistsError, NotFoundError, StatusError
from moorage.api.jobs import SCHEDULED_TIMESTAMP, CronJob, CronJobSpec, CronJobStatus, Job
from moorage.api.meta import ObjectReference
from moorage.controllers.informers import OWNER, Informers
from moorage.controllers.jobs.failure_policy import COMPLETE
from moorage.controllers.loop import Loop, key_if_present
from moorage.controllers.ownership import controller_of, controller_reference
from moorage.controllers.requests import is_namespace_ending, status_patch
from moorage.wire.client.informer import object_key
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import CRON_JOBS, JOBS
from moorage.wire.client.rest import Client, UnreachableError

# Jobs of a CronJob: which are active, which succeeded last, which are to be deleted.

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


# CronJob controller: creates a Job at each scheduled time and deletes old ones.
#
# A Job is named after the minute that it is scheduled for, so that a controller that is killed
# before it has written the status does not create it twice. Source: API docs "CronJob", KEP-3140
# for zones.

_RFC1123Z = "%a, %d %b %Y %H:%M:%S +0000"


class CronJobController:
    """Watches CronJobs and Jobs; creates and deletes Jobs."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._cron_jobs = informers.cron_jobs
        self._jobs = informers.jobs
        self._clock = clock
        self.run = Loop(
            "cronjobs",
            self._reconcile,
            [(self._cron_jobs, key_if_present), (self._jobs, self._job_changed)],
            clock,
        ).run

    def _job_changed(self, before: Job | None, after: Job | None) -> Iterator[str]:
        for job in (before, after):
            owner = controller_of(job.metadata) if job is not None else None
            if job is None or owner is None or owner.kind != CRON_JOBS.kind:
                continue
            cron_job = self._cron_jobs.get(owner.name, job.metadata.namespace)
            if cron_job is not None and cron_job.metadata.uid == owner.uid:
                yield object_key(cron_job.metadata)

    async def _reconcile(self, key: str) -> float | None:
        cron_job = self._cron_jobs.get_key(key)
        if cron_job is None:
            return None
        jobs = [
            job
            for job in self._jobs.by_index(OWNER, cron_job.metadata.uid)
            if (owner := controller_of(job.metadata)) and owner.uid == cron_job.metadata.uid
        ]
        for job in expired_jobs(cron_job.spec, jobs):
            await self._delete(cron_job, job.metadata.name, job.metadata.uid)
        status = await self._observe(cron_job, jobs)
        try:
            status, wait_s = await self._start(cron_job, status)
        finally:
            await self._report(cron_job, status)
        return wait_s

    async def _observe(self, cron_job: CronJob, jobs: Sequence[Job]) -> CronJobStatus:
        """Return the status without Jobs that have ended or are gone."""
        active = list(cron_job.status.active)
        for ended in ended_jobs(cron_job, jobs):
            message = f"Saw completed job: {ended.name}, condition: {ended.condition}"
            self._record(cron_job, NORMAL, "SawCompletedJob", message)
            active = [listed for listed in active if listed.uid != ended.uid]
        known = {job.metadata.uid for job in jobs}
        for missing in [listed for listed in active if listed.uid not in known]:
            if not await self._exists(missing):
                message = f"Active job went missing: {missing.name}"
                self._record(cron_job, NORMAL, "MissingJob", message)
                active.remove(missing)
        for job in jobs:
            is_listed = any(job.metadata.uid == listed.uid for listed in cron_job.status.active)
            if job.status.finished is None and not is_listed:
                await self._note_unexpected(cron_job, job)
        return msgspec.structs.replace(
            cron_job.status,
            active=tuple(active),
            last_successful_time=last_success(jobs, cron_job.status.last_successful_time),
        )

    async def _exists(self, job: ObjectReference) -> bool:
        """Return whether a Job exists that the informer does not show."""
        try:
            await self._client.get(JOBS, job.name, job.namespace)
        except NotFoundError:
            return False
        return True

    async def _note_unexpected(self, cron_job: CronJob, job: Job) -> None:
        """Report an active Job that the status does not name, unless the copy of it is old."""
        meta = cron_job.metadata
        fresh = await self._client.get(CRON_JOBS, meta.name, meta.namespace)
        if all(listed.uid != job.metadata.uid for listed in fresh.status.active):
            name = job.metadata.name
            message = f"Saw a job that the controller did not create or forgot: {name}"
            self._record(cron_job, WARNING, "UnexpectedJob", message)

    async def _start(
        self, cron_job: CronJob, status: CronJobStatus
    ) -> tuple[CronJobStatus, float | None]:
        """Start the Job that is due. Returns the status with it, and the seconds to the next."""
        if cron_job.metadata.deletion_timestamp is not None:
            return status, None
        schedule = self._schedule(cron_job)
        if schedule is None:
            return status, None
        cron_job = msgspec.structs.replace(cron_job, status=status)
        now = self._clock.now()
        try:
            due = due_time(cron_job, schedule, now)
        except ScheduleError as error:
            message = f"invalid schedule: {cron_job.spec.schedule} : {error}"
            self._record(cron_job, WARNING, "InvalidSchedule", message)
            return status, None
        if due is not None and due.missed_many:
            self._record(
                cron_job,
                WARNING,
                "TooManyMissedTimes",
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or "
                "check clock skew",
            )
        if due is not None and self._may_start(cron_job, due.time, now):
            status = await self._start_at(cron_job, due.time)
            cron_job = msgspec.structs.replace(cron_job, status=status)
        return status, seconds_to_next(cron_job, schedule, now)

    def _schedule(self, cron_job: CronJob) -> Schedule | None:
        """Return the schedule; None, after an event, for one that cannot be followed."""
        zone = cron_job.spec.time_zone
        try:
            schedule = schedule_of(cron_job)
        except UnknownTimeZoneError as error:
            message = f'invalid timeZone: "{zone}": {error}'
            self._record(cron_job, WARNING, "UnknownTimeZone", message)
            return None
        except ScheduleError as error:
            if not cron_job.spec.suspend:
                message = f'unparseable schedule: "{cron_job.spec.schedule}" : {error}'
                self._record(cron_job, WARNING, "UnparseableSchedule", message)
            return None
        return None if cron_job.spec.suspend else schedule

    def _may_start(self, cron_job: CronJob, time: datetime, now: datetime) -> bool:
        deadline_s = cron_job.spec.starting_deadline_seconds
        if deadline_s is not None and (now - time).total_seconds() > deadline_s:
            message = f"Missed scheduled time to start a job: {time.strftime(_RFC1123Z)}"
            self._record(cron_job, WARNING, "MissSchedule", message)
            return False
        if is_processed(cron_job, time):
            return False
        if cron_job.spec.concurrency_policy == "Forbid" and cron_job.status.active:
            message = (
                "Not starting job because prior execution is running and concurrency policy is "
                "Forbid"
            )
            self._record(cron_job, NORMAL, "JobAlreadyActive", message)
            return False
        return True

    async def _start_at(self, cron_job: CronJob, time: datetime) -> CronJobStatus:
        """Create the Job for a time. Returns the status that names it.

        Raises StatusError or UnreachableError.
        """
        status = cron_job.status
        if cron_job.spec.concurrency_policy == "Replace":
            for running in status.active:
                await self._delete(cron_job, running.name, running.uid)
            status = msgspec.structs.replace(status, active=())
        job = await self._create(cron_job, time)
        if job is None or any(listed.uid == job.metadata.uid for listed in status.active):
            return status
        return msgspec.structs.replace(
            status,
            active=(*status.active, reference(JOBS, job)),
            last_schedule_time=format_time(time),
        )

    async def _create(self, cron_job: CronJob, time: datetime) -> Job | None:
        """Create a Job, or find the one that was created before; None for another's."""
        local = time.astimezone(load_zone(cron_job.spec.time_zone or ""))
        body, namespace = job_of(cron_job, time, local), cron_job.metadata.namespace
        name = body["metadata"]["name"]
        try:
            job = await self._client.create(JOBS, body, namespace)
        except AlreadyExistsError:
            existing = await self._client.get(JOBS, name, namespace)
            owner = controller_of(existing.metadata)
            return existing if owner and owner.uid == cron_job.metadata.uid else None
        except (StatusError, UnreachableError) as error:
            if not is_namespace_ending(error):
                message = f"Error creating job: {error}"
                self._record(cron_job, WARNING, "FailedCreate", message)
            raise
        self._record(cron_job, NORMAL, "SuccessfulCreate", f"Created job {name}")
        return job

    async def _delete(self, cron_job: CronJob, name: str, uid: str) -> None:
        """Delete a Job with its pods; one that is gone is no failure."""
        namespace = cron_job.metadata.namespace
        try:
            await self._client.delete(
                JOBS, name, namespace, uid=uid, propagation_policy="Background"
            )
        except NotFoundError:
            return
        except (StatusError, UnreachableError) as error:
            self._record(cron_job, WARNING, "FailedDelete", f"Deleted job: {error}")
            raise
        self._record(cron_job, NORMAL, "SuccessfulDelete", f"Deleted job {name}")

    async def _report(self, cron_job: CronJob, status: CronJobStatus) -> None:
        if status == cron_job.status:
            return
        meta = cron_job.metadata
        patch = status_patch(meta, cron_job.status, status)
        try:
            await self._client.patch(
                CRON_JOBS, meta.name, patch, meta.namespace, subresource="status"
            )
        except NotFoundError:
            return  # It was deleted meanwhile: there is nothing to report on.

    def _record(self, cron_job: CronJob, type_: str, reason: str, message: str) -> None:
        self._recorder.record(reference(CRON_JOBS, cron_job), type_, reason, message)


# Times of a CronJob: which one is due, and when the next will be.

_MANY_MISSED = 100
_PADDING_S = 0.1
"""Added to a wait, so that a clock that runs slow does not wake the controller too early."""


@dataclass(frozen=True, slots=True)
class Due:
    """The last unmet time, and whether more than a hundred were missed before it."""

    time: datetime
    missed_many: bool


def schedule_of(cron_job: CronJob) -> Schedule:
    """Return the CronJob's schedule in its zone. Raises ScheduleError, UnknownTimeZoneError."""
    return parse_schedule(cron_job.spec.schedule, load_zone(cron_job.spec.time_zone or ""))


def due_time(cron_job: CronJob, schedule: Schedule, now: datetime) -> Due | None:
    """Return the last time since the last Job, not older than the deadline; None without one.

    Raises ScheduleError for a schedule that is never due.
    """
    since = _last_time(cron_job)
    deadline_s = cron_job.spec.starting_deadline_seconds
    if deadline_s is not None:
        since = max(since, now - timedelta(seconds=deadline_s))
    if schedule.next(since) is None:
        raise ScheduleError("time difference between two schedules is less than 1 second")
    latest = schedule.latest(since, now)
    if latest is None:
        return None
    missed = count_due(schedule, since, now, _MANY_MISSED + 1)
    return Due(latest, missed > _MANY_MISSED)


def seconds_to_next(cron_job: CronJob, schedule: Schedule, now: datetime) -> float | None:
    """Return the seconds until the schedule is due next; None if it never is."""
    since = _last_time(cron_job)
    due = schedule.next(schedule.latest(since, now) or since)
    if due is not None and due <= now:
        due = schedule.next(now)
    return None if due is None else (due - now).total_seconds() + _PADDING_S


def _last_time(cron_job: CronJob) -> datetime:
    last = cron_job.status.last_schedule_time or cron_job.metadata.creation_timestamp
    assert last is not None, "every stored object has a creation time"
    return parse_time(last)
