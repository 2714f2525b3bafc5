"""Release of tracked pods that no Job will count: its Job is gone or finished, or never was.

Without it, such a pod could never be deleted. Source: KEP-2307, `syncOrphanPod`.
"""

from __future__ import annotations

from moorage.api.clock import Clock
from moorage.api.jobs import Job
from moorage.controllers.informers import OWNER, Informers, wait_synced
from moorage.controllers.jobs.job_pods import is_tracked
from moorage.controllers.jobs.requests import is_managed_elsewhere, release
from moorage.controllers.objects import Pod
from moorage.controllers.ownership import controller_of
from moorage.wire.client.informer import object_key
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import JOBS
from moorage.wire.client.rest import Client


class OrphanController:
    """Watches Jobs and pods; removes finalizers."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._jobs = informers.jobs
        self._pods = informers.pods
        self._queue: WorkQueue[str] = WorkQueue("job-orphan-pods", clock=clock)
        self._jobs.add_handler(self._job_changed)
        self._pods.add_handler(self._pod_changed)

    async def run(self, *, workers: int) -> None:
        """Reconcile until cancelled."""
        await wait_synced(self._jobs, self._pods)
        await self._queue.run(self._reconcile, workers=workers)

    def _job_changed(self, before: Job | None, after: Job | None) -> None:
        """Queue the pods of a Job that is gone or finished."""
        if after is not None and after.status.finished is None:
            return
        either = after or before
        assert either is not None
        for pod in self._pods.by_index(OWNER, either.metadata.uid):
            self._pod_changed(None, pod)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        del before
        if after is not None and is_tracked(after) and self._is_orphan(after):
            self._queue.add(object_key(after.metadata))

    def _is_orphan(self, pod: Pod) -> bool:
        """Return whether no Job is going to count the pod."""
        controller = controller_of(pod.metadata)
        if controller is None:
            return True
        if (controller.api_version, controller.kind) != (JOBS.api_version, JOBS.kind):
            return False
        job = self._jobs.get(controller.name, pod.metadata.namespace)
        if job is None or job.metadata.uid != controller.uid:
            return True
        return not is_managed_elsewhere(job) and job.status.finished is not None

    async def _reconcile(self, key: str) -> float | None:
        pod = self._pods.get_key(key)
        if pod is not None and is_tracked(pod) and self._is_orphan(pod):
            await release(self._client, pod)
        return None
