"""Deletion of finished Jobs, `ttlSecondsAfterFinished` after their end. Source: KEP-592."""

from __future__ import annotations

from datetime import datetime, timedelta

from moorage.api.clock import Clock, parse_time
from moorage.api.errors import NotFoundError
from moorage.api.jobs import Job
from moorage.controllers.informers import Informers, wait_synced
from moorage.wire.client.informer import object_key
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import JOBS
from moorage.wire.client.rest import Client


class TtlAfterFinishedController:
    """Watches Jobs and deletes those whose time is over, with their pods."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._jobs = informers.jobs
        self._clock = clock
        self._queue: WorkQueue[str] = WorkQueue("ttl-after-finished", clock=clock)
        self._jobs.add_handler(self._job_changed)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._jobs)
        await self._queue.run(self._reconcile)

    def _job_changed(self, before: Job | None, after: Job | None) -> None:
        del before
        if after is not None and expiry_time(after) is not None:
            self._queue.add(object_key(after.metadata))

    async def _reconcile(self, key: str) -> float | None:
        job = self._jobs.get_key(key)
        left_s = self._seconds_left(job)
        if left_s is None or left_s > 0:
            return left_s
        assert job is not None, "only a Job has an expiry time"
        meta = job.metadata
        try:
            # The informer's copy may be old: the time to live may have been extended.
            fresh = await self._client.get(JOBS, meta.name, meta.namespace)
            left_s = self._seconds_left(fresh)
            if fresh.metadata.uid != meta.uid or left_s is None or left_s > 0:
                return left_s
            await self._client.delete(
                JOBS, meta.name, meta.namespace, uid=meta.uid, propagation_policy="Foreground",
                resource_version=fresh.metadata.resource_version,
            )  # fmt: skip
        except NotFoundError:
            return None
        return None

    def _seconds_left(self, job: Job | None) -> float | None:
        """Return the seconds until the Job expires; None if it does not."""
        expiry = expiry_time(job) if job is not None else None
        return None if expiry is None else max(0.0, (expiry - self._clock.now()).total_seconds())


def expiry_time(job: Job) -> datetime | None:
    """Return when a finished Job is to be deleted; None without a limit, or if it is already."""
    ttl_s, finished = job.spec.ttl_seconds_after_finished, job.status.finished
    if ttl_s is None or finished is None or job.metadata.deletion_timestamp is not None:
        return None
    if finished.last_transition_time is None:
        return None
    return parse_time(finished.last_transition_time) + timedelta(seconds=ttl_s)
