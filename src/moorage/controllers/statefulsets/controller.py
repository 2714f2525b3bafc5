"""StatefulSet controller: keeps each set's pods, in order, at its template and their claims.

A reconcile finds the set's revisions and pods, makes a plan (`planning`), carries it out and
updates the status. It waits until its informers have shown its earlier requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import NotFoundError
from moorage.api.labels import from_object
from moorage.api.meta import ObjectMeta, Raw
from moorage.api.persistent_volumes import PersistentVolumeClaim
from moorage.api.workloads import ControllerRevision, StatefulSet, StatefulSetStatus
from moorage.controllers.expectations import Expectations
from moorage.controllers.informers import NAMESPACE, Informers
from moorage.controllers.loop import Loop, key_of_either_forgetting
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.ownership import Claimer, sort_claims
from moorage.controllers.pods import (
    Failure,
    PodBatches,
    PodOwners,
    is_deleting,
    is_ready,
    next_available_s,
)
from moorage.controllers.requests import at_once, status_patch
from moorage.controllers.revisions import (
    RevisionOwners,
    RevisionRequests,
    expired,
    next_number,
    sort_history,
    template_of,
)
from moorage.controllers.statefulsets.planning import (
    REVISION,
    Members,
    Plan,
    is_available,
    is_member,
    make_plan,
    replicas_of,
    sort_members,
    uses_current,
)
from moorage.controllers.statefulsets.requests import (
    MemberRequests,
    claim_names,
    is_claim_of,
    is_stale,
)
from moorage.wire.client.informer import latest, object_key
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import CONTROLLER_REVISIONS, STATEFUL_SETS
from moorage.wire.client.rest import Client

# Status of a StatefulSet. Source: apps/v1 `StatefulSetStatus`.


def observed_status(
    stateful_set: StatefulSet,
    pods: Sequence[Pod],
    revisions: tuple[str, str],
    collisions: int,
    replaced: Collection[str],
    now: datetime,
) -> StatefulSetStatus:
    """Compute the status from the pods.

    `revisions` are the names of the current and the newest revision, `replaced` the uids of pods
    that have just been deleted for an update.
    """
    current, update = revisions
    ready = [pod for pod in pods if pod.status.phase == "Running" and is_ready(pod)]
    min_ready_s = stateful_set.spec.min_ready_seconds
    staying = [pod for pod in pods if not is_deleting(pod)]
    status = StatefulSetStatus(
        observed_generation=stateful_set.metadata.generation,
        replicas=len(pods),
        ready_replicas=len(ready),
        available_replicas=sum(is_available(pod, min_ready_s, now) for pod in ready),
        current_replicas=sum(
            _has(pod, current) for pod in staying if pod.metadata.uid not in replaced
        ),
        updated_replicas=sum(_has(pod, update) for pod in staying),
        current_revision=current,
        update_revision=update,
        collision_count=collisions,
        conditions=stateful_set.status.conditions,
    )
    return _completed(status, replicas_of(stateful_set))


def _completed(status: StatefulSetStatus, replicas: int) -> StatefulSetStatus:
    """Make the newest revision the current one, once every pod has it and is ready."""
    counts = (status.updated_replicas, status.ready_replicas, status.replicas)
    if counts != (replicas, replicas, replicas):
        return status
    return msgspec.structs.replace(
        status,
        current_replicas=status.updated_replicas,
        current_revision=status.update_revision,
    )


def _has(pod: Pod, revision: str) -> bool:
    return pod.metadata.labels.get(REVISION) == revision


_HASH = "controller.kubernetes.io/hash"
_HISTORY_LIMIT = 10


@dataclass(frozen=True, slots=True)
class _Revisions:
    """A set's current and newest revision, the others, and its collision count."""

    current: ControllerRevision
    update: ControllerRevision
    all: tuple[ControllerRevision, ...]
    collisions: int

    @property
    def names(self) -> tuple[str, str]:
        return self.current.metadata.name, self.update.metadata.name


class StatefulSetController:
    """Watches StatefulSets, pods, claims and revisions; creates and deletes pods."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._sets = informers.stateful_sets
        self._pods = informers.pods
        self._claims = informers.claims
        self._revisions = informers.revisions
        self._clock = clock
        self._expectations = Expectations(clock)
        self._revision_expectations = Expectations(clock)
        self._pod_claimer = Claimer(client, STATEFUL_SETS, PODS)
        self._revision_claimer = Claimer(client, STATEFUL_SETS, CONTROLLER_REVISIONS)
        self._requests = MemberRequests(client, recorder, self._claims)
        self._batches = PodBatches(self._expectations)
        self._revision_requests = RevisionRequests(client, STATEFUL_SETS, _HASH)
        pod_owners = PodOwners(self._sets, self._expectations)
        revision_owners = RevisionOwners(self._sets, self._revision_expectations)
        self.run = Loop(
            "statefulsets",
            self._reconcile,
            [
                (self._sets, key_of_either_forgetting(self._forget)),
                (self._pods, pod_owners.pod_changed),
                (self._revisions, revision_owners.revision_changed),
                (self._claims, self._claim_changed),
            ],
            clock,
        ).run

    def _claim_changed(
        self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None
    ) -> Iterator[str]:
        """Yield the set of a claim that came or went: its pods may wait for that."""
        if before is not None and after is not None:
            return
        either = latest(before, after)
        for stateful_set in self._sets.by_index(NAMESPACE, either.metadata.namespace):
            if is_claim_of(stateful_set, either.metadata.name):
                yield object_key(stateful_set.metadata)

    def _forget(self, key: str) -> None:
        self._expectations.forget(key)
        self._revision_expectations.forget(key)

    async def _reconcile(self, key: str) -> float | None:
        stateful_set = self._sets.get_key(key)
        if stateful_set is None:
            self._forget(key)
            return None
        unseen_s = max(
            self._expectations.seconds_left(key), self._revision_expectations.seconds_left(key)
        )
        if unseen_s:
            return unseen_s
        revisions = await self._history(key, stateful_set)
        if revisions is None:
            return None
        pods = await self._claimed_pods(stateful_set)
        now = self._clock.now()
        plan = self._plan(stateful_set, pods, revisions)
        failure = await self._carry_out(key, stateful_set, plan, revisions)
        replaced = {pod.metadata.uid for pod in plan.replaced}
        status = observed_status(
            stateful_set, pods, revisions.names, revisions.collisions, replaced, now
        )
        await self._report(stateful_set, status)
        await self._remove_expired(stateful_set, pods, revisions)
        if failure is not None:
            raise failure
        return next_available_s(pods, stateful_set.spec.min_ready_seconds, now)

    async def _history(self, key: str, stateful_set: StatefulSet) -> _Revisions | None:
        """Find or create the set's revisions; None if a set that is being deleted lacks them."""
        meta, template = stateful_set.metadata, stateful_set.spec.template
        claims = sort_claims(
            meta,
            from_object(stateful_set.spec.selector),
            self._revisions.by_index(NAMESPACE, meta.namespace),
        )
        revisions = await self._revision_claimer.claim(meta, claims)
        history = sort_history(revisions, template)
        collisions = stateful_set.status.collision_count or 0
        number = next_number(history.old)
        update = history.current
        if update is None:
            if meta.deletion_timestamp is not None:
                return None
            self._revision_expectations.expect_creations(key, 1)
            try:
                named = await self._revision_requests.create(meta, template, number, collisions)
            except BaseException:
                self._revision_expectations.forget(key)
                raise
            update, collisions = named.revision, named.collisions
            if self._revisions.get(update.metadata.name, meta.namespace) is not None:
                self._revision_expectations.forget(key)
        elif update.revision < number:
            update = await self._revision_requests.renumber(update, number)
        named_current = stateful_set.status.current_revision
        current = next((one for one in revisions if one.metadata.name == named_current), update)
        return _Revisions(current, update, tuple(revisions), collisions)

    async def _claimed_pods(self, stateful_set: StatefulSet) -> list[Pod]:
        meta = stateful_set.metadata
        claims = sort_claims(
            meta,
            from_object(stateful_set.spec.selector),
            self._pods.by_index(NAMESPACE, meta.namespace),
            lambda pod: is_member(stateful_set, pod.metadata),
        )
        return await self._pod_claimer.claim(meta, claims)

    def _plan(self, stateful_set: StatefulSet, pods: Sequence[Pod], revisions: _Revisions) -> Plan:
        if stateful_set.metadata.deletion_timestamp is not None:
            return Plan()
        members = sort_members(stateful_set, pods)
        blocked = self._blocked(stateful_set, members)
        update = revisions.update.metadata.name
        return make_plan(stateful_set, members, update, blocked, self._clock.now())

    def _blocked(self, stateful_set: StatefulSet, members: Members) -> set[int]:
        """Return the missing ordinals whose claims are still to go with an earlier pod."""
        if not stateful_set.spec.volume_claim_templates:
            return set()
        missing = (ordinal for ordinal, pod in members.replicas.items() if pod is None)
        return {
            ordinal
            for ordinal in missing
            if is_stale(stateful_set, ordinal, self._claims_of(stateful_set, ordinal))
        }

    def _claims_of(self, stateful_set: StatefulSet, ordinal: int) -> Iterable[ObjectMeta]:
        namespace = stateful_set.metadata.namespace
        for name in claim_names(stateful_set, ordinal):
            claim = self._claims.get(name, namespace)
            if claim is not None:
                yield claim.metadata

    async def _carry_out(
        self, key: str, stateful_set: StatefulSet, plan: Plan, revisions: _Revisions
    ) -> Failure | None:
        """Carry out a plan. Returns the first failure, which ends it."""
        complete, repair = self._requests.complete_claims, self._requests.repair
        failure = await at_once(
            [
                *(partial(complete, stateful_set, pod) for pod in plan.pending),
                *(partial(repair, stateful_set, pod) for pod in plan.established),
            ]
        )
        leaving = (*plan.deletions, *plan.replaced)
        if failure is not None or not (plan.creations or leaving):
            return failure
        self._expectations.expect(
            key,
            creations=len(plan.creations),
            deletions={pod.metadata.uid for pod in leaving},
        )
        failure = await self._create(key, stateful_set, plan.creations, revisions)
        if failure is not None:
            for pod in leaving:
                self._expectations.deletion_seen(key, pod.metadata.uid)
            return failure
        delete = partial(self._requests.delete, stateful_set)
        _, failure = await self._batches.delete(key, leaving, delete)
        return failure

    async def _create(
        self,
        key: str,
        stateful_set: StatefulSet,
        ordinals: Sequence[int],
        revisions: _Revisions,
    ) -> Failure | None:

        async def create(ordinal: int) -> None:
            is_old = uses_current(stateful_set, ordinal)
            revision = revisions.current if is_old else revisions.update
            template: Raw = template_of(revision)
            await self._requests.create(stateful_set, template, ordinal, revision.metadata.name)

        calls = [partial(create, ordinal) for ordinal in ordinals]
        _, failure = await self._batches.create(key, calls)
        return failure

    async def _remove_expired(
        self, stateful_set: StatefulSet, pods: Iterable[Pod], revisions: _Revisions
    ) -> None:
        live = {pod.metadata.labels.get(REVISION, "") for pod in pods}.union(revisions.names)
        limit = stateful_set.spec.revision_history_limit
        limit = _HISTORY_LIMIT if limit is None else limit
        for revision in expired(revisions.all, live, limit, counts_live=False):
            await self._revision_requests.delete(revision)

    async def _report(self, stateful_set: StatefulSet, status: StatefulSetStatus) -> None:
        if status == stateful_set.status:
            return
        meta = stateful_set.metadata
        patch = status_patch(meta, stateful_set.status, status)
        # Zero is news here: a set with no pods says so.
        patch["status"]["replicas"] = status.replicas
        patch["status"]["availableReplicas"] = status.available_replicas
        try:
            await self._client.patch(
                STATEFUL_SETS, meta.name, patch, meta.namespace, subresource="status"
            )
        except NotFoundError:
            return  # It was deleted meanwhile: there is nothing to report on.
