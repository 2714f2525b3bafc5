"""Requests of the Job controllers: status updates, and the removal of pods' finalizers."""

from __future__ import annotations

from typing import Any

from moorage.api.jobs import JOB_CONTROLLER, TRACKING_FINALIZER, Job, JobStatus
from moorage.controllers.finalizers import remove_finalizer
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.patches import status_patch
from moorage.wire.client.resources import JOBS
from moorage.wire.client.rest import Client


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
