"""Job controller: runs pods until enough have succeeded, and counts how they ended.

A reconcile decides whether the Job ends (`termination`); deletes its pods if so, else creates and
deletes what is missing and superfluous (`planning`); counts ended pods (`tracking`); and writes the
status, guarded by the revision that was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import NotFoundError, StatusError
from moorage.api.jobs import (
    TRACKING_FINALIZER,
    Job,
    JobCondition,
    JobStatus,
    UncountedTerminatedPods,
)
from moorage.api.labels import from_object
from moorage.controllers.expectations import Expectations
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.jobs.backoff import Failures
from moorage.controllers.jobs.failure_policy import (
    COMPLETE,
    SUSPENDED,
    final_condition,
    new_condition,
    with_condition,
)
from moorage.controllers.jobs.job_pods import is_tracked, job_pod
from moorage.controllers.jobs.planning import (
    completed_condition,
    interim_condition,
    is_managed_elsewhere,
    make_plan,
    release,
    update_status,
)
from moorage.controllers.jobs.tracking import Tracking, track, with_counts
from moorage.controllers.jobs.view import View
from moorage.controllers.loop import Loop, key_of_either_forgetting
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.ownership import Claimer, sort_claims
from moorage.controllers.pods import Failure, PodBatches, PodOwners, PodRequests, is_ready
from moorage.controllers.requests import at_once
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import JOBS
from moorage.wire.client.rest import Client, UnreachableError


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Pods that are active, ready and terminating, once the requests of a reconcile are made."""

    active: int
    ready: int
    terminating: int

    def without(self, deleted: Sequence[Pod]) -> _Numbers:
        ready = sum(map(is_ready, deleted))
        return _Numbers(
            self.active - len(deleted), self.ready - ready, self.terminating + len(deleted)
        )


class JobController:
    """Watches Jobs and pods; creates, deletes and counts pods."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._jobs = informers.jobs
        self._pods = informers.pods
        self._clock = clock
        self._expectations = Expectations(clock)
        self._claimer = Claimer(client, JOBS, PODS, finalizer=TRACKING_FINALIZER)
        self._requests = PodRequests(client, recorder, JOBS)
        self._batches = PodBatches(self._expectations)
        self._failures: dict[str, Failures] = {}
        self._written: dict[str, tuple[str, int]] = {}
        """By key, the uid of the Job and the revision of its last status that we wrote."""
        self._released: set[str] = set()
        """Uids of pods whose finalizer we removed and the informer still shows."""
        self._pod_owners = PodOwners(self._jobs, self._expectations)
        self.run = Loop(
            "jobs",
            self._reconcile,
            [(self._jobs, key_of_either_forgetting(self._forget)), (self._pods, self._pod_changed)],
            clock,
        ).run

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[str]:
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._released.discard(before.metadata.uid)
        if after is not None and not is_tracked(after):
            self._released.discard(after.metadata.uid)
        yield from self._pod_owners.pod_changed(before, after)

    def _forget(self, key: str) -> None:
        self._expectations.forget(key)
        self._failures.pop(key, None)
        self._written.pop(key, None)

    async def _reconcile(self, key: str) -> float | None:
        job = self._jobs.get_key(key)
        if job is None or job.status.finished is not None:
            self._forget(key)
            return None
        # A copy from before our own last write is followed by a newer one, which queues the key.
        if is_managed_elsewhere(job) or self._is_outdated(key, job):
            return None
        # Read before the claims wait for the server, so that later arrivals are not counted as met.
        may_manage = self._expectations.are_met(key)
        pods = await self._claimed_pods(job)
        earlier = self._failures.get(key, Failures())
        view = View(job, tuple(pods), frozenset(self._released), earlier, self._clock.now())
        step = await self._manage(key, view, may_manage=may_manage)
        try:
            await self._track(key, view, step)
        except NotFoundError:
            return None  # The Job was deleted meanwhile: there is nothing to report on.
        if step.failure is not None:
            raise step.failure
        waits = (step.wait_s, self._expectations.seconds_left(key) or None, _deadline_s(view))
        return min((wait for wait in waits if wait is not None), default=None)

    def _is_outdated(self, key: str, job: Job) -> bool:
        uid, revision = self._written.get(key, ("", 0))
        return uid == job.metadata.uid and int(job.metadata.resource_version) < revision

    async def _claimed_pods(self, job: Job) -> list[Pod]:
        """Return the Job's pods; those adopted just now as they are afterwards."""
        meta = job.metadata
        candidates = self._pods.by_index(NAMESPACE, meta.namespace)
        claims = sort_claims(meta, from_object(job.spec.selector), candidates)
        adopted = {pod.metadata.uid for pod in claims.adopted}
        pods = await self._claimer.claim(meta, claims)
        return [_with_finalizer(pod) if pod.metadata.uid in adopted else pod for pod in pods]

    async def _manage(self, key: str, view: View, *, may_manage: bool) -> _Step:
        """Create and delete pods. Returns the outcome."""
        numbers = _Numbers(len(view.active), sum(map(is_ready, view.active)), len(view.terminating))
        interim = interim_condition(view)
        if interim is not None:
            deleted, failure = await self._delete(key, view.job, view.active)
            # A pod that was created just now may not be known yet.
            is_last = len(deleted) == len(view.active) and may_manage
            return _Step(numbers.without(deleted), interim if is_last else None, failure)
        if not may_manage or view.job.metadata.deletion_timestamp is not None:
            return _Step(numbers, completed_condition(view, numbers.active), None)
        plan = make_plan(view)
        deleted, failure = await self._delete(key, view.job, plan.deletions, releases=True)
        numbers = numbers.without(deleted)
        if plan.creations:
            created, failure = await self._create(key, view, plan.creations)
            numbers = replace(numbers, active=numbers.active + created)
        interim = completed_condition(view, numbers.active)
        return _Step(numbers, interim, failure, plan.wait_s, is_managed=True)

    async def _create(
        self, key: str, view: View, indexes: Sequence[int | None]
    ) -> tuple[int, Failure | None]:
        """Create pods. Returns how many were created, and the first failure."""
        self._expectations.expect_creations(key, len(indexes))

        async def create(index: int | None) -> None:
            replaced = view.replaceable.get(index) if index is not None else None
            await self._requests.create(view.job, job_pod(view.job, index, replaced))

        return await self._batches.create(key, [partial(create, index) for index in indexes])

    async def _delete(
        self, key: str, job: Job, pods: Sequence[Pod], *, releases: bool = False
    ) -> tuple[list[Pod], Failure | None]:
        """Delete pods. Returns those that are going, and the first failure.

        `releases`: whether they lose their finalizer first, so that they are never counted.
        """
        if not pods:
            return [], None
        self._expectations.expect_deletions(key, {pod.metadata.uid for pod in pods})

        async def delete(pod: Pod) -> None:
            if releases and is_tracked(pod):
                await release(self._client, pod)
            await self._requests.delete(job, pod)

        return await self._batches.delete(key, pods, delete)

    async def _track(self, key: str, view: View, step: _Step) -> None:
        """Count ended pods and write the status, in an order that survives a crash at any point."""
        status, event = _new_status(view, step)
        tracking = track(view, status, step.interim)
        job = await self._write(key, view.job, tracking.status)
        self._failures[key] = view.failures
        if event is not None:
            self._recorder.record(reference(JOBS, job), NORMAL, event, f"Job {event.lower()}")
        held, failure = await self._release(view, tracking)
        status = with_counts(job.status, held)
        finished: JobCondition | None = None
        if step.interim is not None and failure is None and _is_over(status, tracking, step):
            finished = final_condition(step.interim, view.now)
            status = _finished_status(status, finished)
        job = await self._write(key, job, status)
        if finished is not None:
            self._report_end(job, finished)
        if failure is not None:
            raise failure

    async def _release(self, view: View, tracking: Tracking) -> tuple[set[str], Failure | None]:
        """Remove finalizers. Returns the uids of the pods that keep theirs, and a failure."""
        held = {pod.metadata.uid for pod in view.pods if view.is_uncounted(pod)}
        self._released |= {pod.metadata.uid for pod in tracking.released}

        async def release_one(pod: Pod) -> None:
            uid = pod.metadata.uid
            try:
                await release(self._client, pod)
            except (StatusError, UnreachableError):
                self._released.discard(uid)
                raise
            held.discard(uid)
            if self._pods.get(pod.metadata.name, pod.metadata.namespace) is None:
                self._released.discard(uid)

        failure = await at_once([partial(release_one, pod) for pod in tracking.released])
        return held, failure

    async def _write(self, key: str, job: Job, status: JobStatus) -> Job:
        written = await update_status(self._client, job, status)
        meta = written.metadata
        self._written[key] = (meta.uid, int(meta.resource_version))
        return written

    def _report_end(self, job: Job, finished: JobCondition) -> None:
        about = reference(JOBS, job)
        if finished.type != COMPLETE:
            self._recorder.record(about, WARNING, finished.reason, finished.message)
            return
        completions = job.spec.completions
        if completions is not None and job.status.succeeded > completions:
            message = "Too many succeeded pods running after completion count reached"
            self._recorder.record(about, WARNING, "TooManySucceededPods", message)
        self._recorder.record(about, NORMAL, "Completed", "Job completed")


@dataclass(frozen=True, slots=True)
class _Step:
    """What a reconcile did about the pods.

    `interim`: why the Job ends. `is_managed`: whether the plan for a Job that goes on was carried
    out, so that the Job is suspended or resumed indeed.
    """

    numbers: _Numbers
    interim: JobCondition | None
    failure: Failure | None
    wait_s: float | None = None
    is_managed: bool = False


def _new_status(view: View, step: _Step) -> tuple[JobStatus, str | None]:
    """Return the status but for ended pods, and the reason of the event that it calls for."""
    before, numbers = view.job.status, step.numbers
    start = before.start_time
    if start is None and view.start_time is not None:
        start = format_time(view.start_time)
    status = msgspec.structs.replace(
        before,
        start_time=start,
        active=numbers.active,
        ready=numbers.ready,
        terminating=numbers.terminating,
        uncounted_terminated_pods=view.uncounted,
    )
    if step.interim is not None or not step.is_managed:
        return status, None
    return _with_suspension(view, status)


def _with_suspension(view: View, status: JobStatus) -> tuple[JobStatus, str | None]:
    """Return the status that says whether the Job is suspended, and the event of a change.

    A resumed Job has a new start time: its deadline counts the seconds since it was resumed.
    """
    if view.is_suspended:
        reason, message, value, start = "JobSuspended", "Job suspended", "True", None
    else:
        reason, message, value = "JobResumed", "Job resumed", "False"
        start = format_time(view.now)
    condition = new_condition(SUSPENDED, reason, message, view.now, value)
    conditions = with_condition(status.conditions, condition)
    if conditions is status.conditions:
        return status, None
    status = msgspec.structs.replace(status, conditions=conditions, start_time=start)
    return status, "Suspended" if view.is_suspended else "Resumed"


def _is_over(status: JobStatus, tracking: Tracking, step: _Step) -> bool:
    """Return whether all pods have ended and are counted."""
    uncounted = status.uncounted_terminated_pods or UncountedTerminatedPods()
    is_counted = tracking.is_whole and not (uncounted.succeeded or uncounted.failed)
    return is_counted and step.numbers.terminating == 0


def _finished_status(status: JobStatus, finished: JobCondition) -> JobStatus:
    is_complete = finished.type == COMPLETE
    return msgspec.structs.replace(
        status,
        conditions=with_condition(status.conditions, finished),
        completion_time=finished.last_transition_time if is_complete else status.completion_time,
    )


def _deadline_s(view: View) -> float | None:
    """Return the seconds until the deadline; None without one, or if it has passed."""
    if view.deadline is None or view.now >= view.deadline:
        return None
    return (view.deadline - view.now).total_seconds()


def _with_finalizer(pod: Pod) -> Pod:
    finalizers = (*pod.metadata.finalizers, TRACKING_FINALIZER)
    meta = msgspec.structs.replace(pod.metadata, finalizers=finalizers)
    return msgspec.structs.replace(pod, metadata=meta)
