"""ReplicaSets: a given number of pods of one template."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from moorage.api.clock import Clock, format_time
from moorage.api.errors import NotFoundError
from moorage.api.labels import from_labels, from_object
from moorage.api.workloads import ReplicaSet, ReplicaSetCondition, ReplicaSetStatus
from moorage.controllers.expectations import Expectations
from moorage.controllers.informers import NAMESPACE, OWNER, Informers
from moorage.controllers.loop import Loop, key_of_either_forgetting
from moorage.controllers.objects import PODS, Pod
from moorage.controllers.ownership import Claimer, controller_of, sort_claims
from moorage.controllers.pods import (
    Failure,
    PodBatches,
    PodOwners,
    PodRequests,
    is_active,
    is_ready,
    is_terminating,
    next_available_s,
    pod_of,
    pods_to_delete,
    seconds_until_available,
)
from moorage.controllers.requests import status_patch
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import REPLICA_SETS
from moorage.wire.client.rest import Client

# ReplicaSet controller: keeps each set at its number of pods; ReplicationControllers too.
#
# A reconcile adopts the set's pods, creates or deletes the difference, and updates the status. It
# waits until its informers have shown its own earlier requests (`Expectations`).

_BURST = 500


class ReplicaSetController:
    """Watches the sets of one resource and pods, creates and deletes pods.

    `sets` are ReplicaSets or ReplicationControllers, which are decoded alike.
    """

    def __init__(
        self,
        client: Client,
        informers: Informers,
        sets: Informer[ReplicaSet],
        recorder: EventRecorder,
        clock: Clock,
    ) -> None:
        self._client = client
        self._sets = sets
        self._resource = sets.resource
        self._pods = informers.pods
        self._clock = clock
        self._expectations = Expectations(clock)
        self._claimer = Claimer(client, self._resource, PODS)
        self._requests = PodRequests(client, recorder, self._resource)
        self._batches = PodBatches(self._expectations)
        self.run = Loop(
            sets.resource.plural,
            self._reconcile,
            [
                (self._sets, key_of_either_forgetting(self._expectations.forget)),
                (self._pods, PodOwners(self._sets, self._expectations).pod_changed),
            ],
            clock,
        ).run

    async def _reconcile(self, key: str) -> float | None:
        replica_set = self._sets.get_key(key)
        if replica_set is None:
            self._expectations.forget(key)
            return None
        meta = replica_set.metadata
        # Read before the claims wait for the server, so that later arrivals are not counted as met.
        may_manage = self._expectations.are_met(key)
        candidates = self._pods.by_index(NAMESPACE, meta.namespace)
        claims = sort_claims(
            meta, from_object(replica_set.spec.selector), filter(is_active, candidates)
        )
        active = await self._claimer.claim(meta, claims)
        terminating: int | None = None
        if self._resource is REPLICA_SETS:
            # Only their status says it.
            terminating = sum(map(is_terminating, self._pods.by_index(OWNER, meta.uid)))
        failure: Failure | None = None
        if may_manage and meta.deletion_timestamp is None:
            failure = await self._manage(key, replica_set, active)
        now = self._clock.now()
        status = observed_status(
            replica_set, active, terminating, str(failure) if failure is not None else None, now
        )
        await self._report(replica_set, status)
        if failure is not None:
            raise failure
        waits = (
            next_available_s(active, replica_set.spec.min_ready_seconds, now),
            self._expectations.seconds_left(key) or None,
        )
        return min((wait for wait in waits if wait is not None), default=None)

    async def _manage(
        self, key: str, replica_set: ReplicaSet, active: Sequence[Pod]
    ) -> Failure | None:
        surplus = len(active) - (replica_set.spec.replicas or 0)
        if surplus < 0:
            return await self._create(key, replica_set, min(-surplus, _BURST))
        if surplus > 0:
            return await self._delete(key, replica_set, active, min(surplus, _BURST))
        return None

    async def _create(self, key: str, replica_set: ReplicaSet, count: int) -> Failure | None:
        self._expectations.expect_creations(key, count)
        body = pod_of(self._resource, replica_set.metadata, replica_set.spec.template)
        create = partial(self._requests.create, replica_set, body)
        _, failure = await self._batches.create(key, [create] * count)
        return failure

    async def _delete(
        self, key: str, replica_set: ReplicaSet, active: Sequence[Pod], count: int
    ) -> Failure | None:
        chosen = pods_to_delete(active, self._related(replica_set), count, self._clock.now())
        self._expectations.expect_deletions(key, {pod.metadata.uid for pod in chosen})

        delete = partial(self._requests.delete, replica_set)
        _, failure = await self._batches.delete(key, chosen, delete)
        return failure

    def _related(self, replica_set: ReplicaSet) -> list[Pod]:
        """Return the pods of all sets that have the same controller as this one."""
        controller = controller_of(replica_set.metadata)
        if controller is None:
            return self._pods.by_index(OWNER, replica_set.metadata.uid)
        return [
            pod
            for sibling in self._sets.by_index(OWNER, controller.uid)
            for pod in self._pods.by_index(OWNER, sibling.metadata.uid)
        ]

    async def _report(self, replica_set: ReplicaSet, status: ReplicaSetStatus) -> None:
        if status == replica_set.status:
            return
        meta = replica_set.metadata
        patch = status_patch(meta, replica_set.status, status)
        # Zero is news here: a set with no pods says so.
        patch["status"]["replicas"] = status.replicas
        try:
            await self._client.patch(
                self._resource, meta.name, patch, meta.namespace, subresource="status"
            )
        except NotFoundError:
            return  # It was deleted meanwhile: there is nothing to report on.


# Status of a ReplicaSet. Source: apps/v1 `ReplicaSetStatus`.

REPLICA_FAILURE = "ReplicaFailure"


def observed_status(
    replica_set: ReplicaSet,
    active: Sequence[Pod],
    terminating: int | None,
    failure: str | None,
    now: datetime,
) -> ReplicaSetStatus:
    """Compute the status from the pods. `failure` is the error of managing them, if any."""
    template_labels = from_labels(template_labels_of(replica_set))
    min_ready_s = replica_set.spec.min_ready_seconds
    return ReplicaSetStatus(
        replicas=len(active),
        fully_labeled_replicas=sum(template_labels.matches(pod.metadata.labels) for pod in active),
        ready_replicas=sum(map(is_ready, active)),
        available_replicas=sum(
            seconds_until_available(pod, min_ready_s, now) == 0 for pod in active
        ),
        terminating_replicas=terminating,
        observed_generation=replica_set.metadata.generation,
        conditions=_conditions(replica_set, len(active), failure, now),
    )


def template_labels_of(replica_set: ReplicaSet) -> dict[str, str]:
    labels: dict[str, str] = (replica_set.spec.template.get("metadata") or {}).get("labels") or {}
    return labels


def _conditions(
    replica_set: ReplicaSet, active: int, failure: str | None, now: datetime
) -> tuple[ReplicaSetCondition, ...]:
    conditions = replica_set.status.conditions
    others = tuple(other for other in conditions if other.type != REPLICA_FAILURE)
    if failure is None:
        return others
    if len(others) < len(conditions):
        return conditions
    wanted = replica_set.spec.replicas or 0
    if active == wanted:
        return conditions
    condition = ReplicaSetCondition(
        type=REPLICA_FAILURE,
        status="True",
        last_transition_time=format_time(now),
        reason="FailedCreate" if active < wanted else "FailedDelete",
        message=failure,
    )
    return (*conditions, condition)
