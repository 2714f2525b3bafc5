"""Release of tracked pods that no Job will count: its Job is gone or finished, or never was.

Without it, such a pod could never be deleted. Source: KEP-2307, `syncOrphanPod`.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.clock import Clock
from moorage.api.jobs import Job
from moorage.controllers.informers import OWNER, Informers
from moorage.controllers.jobs.job_pods import is_tracked
from moorage.controllers.jobs.requests import is_managed_elsewhere, release
from moorage.controllers.loop import Loop, latest
from moorage.controllers.objects import Pod
from moorage.controllers.ownership import controller_of
from moorage.wire.client.informer import object_key
from moorage.wire.client.resources import JOBS
from moorage.wire.client.rest import Client


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
