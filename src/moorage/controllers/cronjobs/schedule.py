"""Times of a CronJob: which one is due, and when the next will be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from moorage.api.clock import parse_time
from moorage.api.cron import Schedule, ScheduleError, count_due, load_zone, parse_schedule
from moorage.api.jobs import CronJob

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
