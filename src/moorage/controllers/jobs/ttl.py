"""Deletion of finished Jobs, `ttlSecondsAfterFinished` after their end. Source: KEP-592."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

from moorage.api.clock import Clock, parse_time
from moorage.api.errors import NotFoundError
from moorage.api.jobs import Job
from moorage.controllers.informers import OWNER, Informers
from moorage.controllers.jobs.job_pods import is_tracked
from moorage.controllers.jobs.planning import is_managed_elsewhere, release
from moorage.controllers.loop import Loop
from moorage.controllers.objects import Pod
from moorage.controllers.ownership import controller_of
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.resources import JOBS
from moorage.wire.client.rest import Client

# Release of tracked pods that no Job will count: its Job is gone or finished, or never was.
#
# Without it, such a pod could never be deleted. Source: KEP-2307, `syncOrphanPod`.


def orphan_release(client: Client, informers: Informers, clock: Clock) -> Loop[str]:
    """Return the loop that removes the finalizer from pods that no Job is going to count."""
    jobs, pods = informers.jobs, informers.pods

    def ended(before: Job | None, after: Job | None) -> Iterator[str]:
        """Yield the pods of a Job that is gone or finished."""
        if after is not None and after.status.finished is None:
            return
        for pod in pods.by_index(OWNER, latest(before, after).metadata.uid):
            yield from left(None, pod)

    def left(before: Pod | None, after: Pod | None) -> Iterator[str]:
        del before
        if after is not None and is_tracked(after) and is_orphan(after):
            yield object_key(after.metadata)

    def is_orphan(pod: Pod) -> bool:
        """Return whether no Job is going to count the pod."""
        controller = controller_of(pod.metadata)
        if controller is None:
            return True
        if (controller.api_version, controller.kind) != (JOBS.api_version, JOBS.kind):
            return False
        job = jobs.get(controller.name, pod.metadata.namespace)
        if job is None or job.metadata.uid != controller.uid:
            return True
        return not is_managed_elsewhere(job) and job.status.finished is not None

    async def reconcile(key: str) -> None:
        pod = pods.get_key(key)
        if pod is not None and is_tracked(pod) and is_orphan(pod):
            await release(client, pod)

    return Loop("job-orphan-pods", reconcile, [(jobs, ended), (pods, left)], clock)


def ttl_after_finished(client: Client, informers: Informers, clock: Clock) -> Loop[str]:
    """Return the loop that deletes Jobs whose time is over, with their pods."""
    jobs = informers.jobs

    def finished(before: Job | None, after: Job | None) -> Iterator[str]:
        del before
        if after is not None and expiry_time(after) is not None:
            yield object_key(after.metadata)

    def seconds_left(job: Job | None) -> float | None:
        """Return the seconds until the Job expires; None if it does not."""
        expiry = expiry_time(job) if job is not None else None
        return None if expiry is None else max(0.0, (expiry - clock.now()).total_seconds())

    async def reconcile(key: str) -> float | None:
        job = jobs.get_key(key)
        left_s = seconds_left(job)
        if left_s is None or left_s > 0:
            return left_s
        assert job is not None, "only a Job has an expiry time"
        meta = job.metadata
        with suppress(NotFoundError):
            # The informer's copy may be old: the time to live may have been extended.
            fresh = await client.get(JOBS, meta.name, meta.namespace)
            left_s = seconds_left(fresh)
            if fresh.metadata.uid != meta.uid or left_s is None or left_s > 0:
                return left_s
            await client.delete(
                JOBS, meta.name, meta.namespace, uid=meta.uid, propagation_policy="Foreground",
                resource_version=fresh.metadata.resource_version,
            )  # fmt: skip
        return None

    return Loop("ttl-after-finished", reconcile, [(jobs, finished)], clock)


def expiry_time(job: Job) -> datetime | None:
    """Return when a finished Job is to be deleted; None without a limit, or if it is already."""
    ttl_s, finished = job.spec.ttl_seconds_after_finished, job.status.finished
    if ttl_s is None or finished is None or job.metadata.deletion_timestamp is not None:
        return None
    if finished.last_transition_time is None:
        return None
    return parse_time(finished.last_transition_time) + timedelta(seconds=ttl_s)
