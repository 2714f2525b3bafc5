"""Deployment controller: moves each Deployment to its template.

A reconcile takes at most one kind of step (scale up, then down) and updates the status; the
change it makes comes back as an event of a ReplicaSet, which leads to the next step. The decisions
are those of `rolling`, `progress` and `revisions`.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.labels import from_object
from moorage.api.meta import ObjectMeta
from moorage.api.workloads import Deployment, DeploymentStatus, ReplicaSet
from moorage.controllers.deployments import progress
from moorage.controllers.deployments.bounds import is_rolling
from moorage.controllers.deployments.revisions import (
    REVISION,
    expired_sets,
    new_set_annotations,
    next_revision,
)
from moorage.controllers.deployments.rolling import (
    empty_old,
    grow_new,
    is_resized,
    new_set_size,
    resize,
    shrink_old,
)
from moorage.controllers.deployments.set_requests import (
    HashCollisionError,
    SetRequests,
    creation_failure,
    new_set,
    with_collision,
)
from moorage.controllers.deployments.sets import SetsOf, sort_sets
from moorage.controllers.informers import NAMESPACE, OWNER, Informers
from moorage.controllers.loop import Loop, key_of_either
from moorage.controllers.objects import Pod
from moorage.controllers.ownership import Claimer, controller_of, sort_claims
from moorage.controllers.pods import is_ended
from moorage.controllers.requests import is_namespace_ending, locked, status_patch
from moorage.wire.client.informer import object_key
from moorage.wire.client.recorder import EventRecorder
from moorage.wire.client.resources import DEPLOYMENTS, REPLICA_SETS
from moorage.wire.client.rest import Client


class DeploymentController:
    """Watches Deployments, their ReplicaSets and pods; creates and resizes ReplicaSets."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._deployments = informers.deployments
        self._sets = informers.replica_sets
        self._pods = informers.pods
        self._clock = clock
        self._claimer = Claimer(client, DEPLOYMENTS, REPLICA_SETS)
        self._requests = SetRequests(client, recorder)
        self.run = Loop(
            "deployments",
            self._reconcile,
            [
                (self._deployments, key_of_either),
                (self._sets, self._set_changed),
                (self._pods, self._pod_changed),
            ],
            clock,
        ).run

    def _set_changed(self, before: ReplicaSet | None, after: ReplicaSet | None) -> Iterator[str]:
        for replica_set in (before, after):
            if replica_set is not None:
                yield from self._key_of_controller(replica_set.metadata)
        if after is None or controller_of(after.metadata) is not None:
            return
        is_news = before is None or before.metadata.labels != after.metadata.labels
        if is_news or (before is not None and controller_of(before.metadata) is not None):
            for other in self._deployments.by_index(NAMESPACE, after.metadata.namespace):
                if from_object(other.spec.selector).matches(after.metadata.labels):
                    yield object_key(other.metadata)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> Iterator[str]:
        """Reconcile the Deployment of a pod that ended or is gone: Recreate waits for that."""
        if before is None or (after is not None and not is_ended(after)):
            return
        controller = controller_of(before.metadata)
        if controller is None or controller.kind != REPLICA_SETS.kind:
            return
        replica_set = self._sets.get(controller.name, before.metadata.namespace)
        if replica_set is not None:
            yield from self._key_of_controller(replica_set.metadata)

    def _key_of_controller(self, meta: ObjectMeta) -> Iterator[str]:
        controller = controller_of(meta)
        if controller is None or controller.kind != DEPLOYMENTS.kind:
            return
        owner = self._deployments.get(controller.name, meta.namespace)
        if owner is not None and owner.metadata.uid == controller.uid:
            yield object_key(owner.metadata)

    async def _reconcile(self, key: str) -> float | None:
        deployment = self._deployments.get_key(key)
        if deployment is None:
            return None
        sets = sort_sets(deployment, await self._claimed(deployment))
        if deployment.metadata.deletion_timestamp is not None:
            await self._report_counts(deployment, sets)
            return None
        conditions = progress.pause_conditions(deployment, self._clock.now())
        if conditions is not None:
            deployment = await self._write_status(
                deployment, msgspec.structs.replace(deployment.status, conditions=conditions)
            )
        if deployment.spec.paused or is_resized(deployment, sets):
            await self._resize_only(deployment, sets)
            return None
        if is_rolling(deployment):
            return await self._roll(deployment, sets)
        return await self._recreate(deployment, sets)

    async def _claimed(self, deployment: Deployment) -> list[ReplicaSet]:
        meta = deployment.metadata
        candidates = self._sets.by_index(NAMESPACE, meta.namespace)
        claims = sort_claims(meta, from_object(deployment.spec.selector), candidates)
        return await self._claimer.claim(meta, claims)

    async def _resize_only(self, deployment: Deployment, sets: SetsOf) -> None:
        if sets.new is not None:
            deployment, sets = await self._with_new_set(deployment, sets)
        sets = await self._requests.carry_out(deployment, sets, resize(deployment, sets))
        if deployment.spec.paused:
            await self._remove_expired(deployment, sets)
        await self._report_counts(deployment, sets)

    async def _roll(self, deployment: Deployment, sets: SetsOf) -> float | None:
        deployment, sets = await self._with_new_set(deployment, sets)
        plan = grow_new(deployment, sets) or shrink_old(deployment, sets)
        sets = await self._requests.carry_out(deployment, sets, plan)
        return await self._conclude(deployment, sets, is_settled=not plan)

    async def _recreate(self, deployment: Deployment, sets: SetsOf) -> float | None:
        plan = empty_old(sets)
        if plan:
            sets = await self._requests.carry_out(deployment, sets, plan)
            return await self._conclude(deployment, sets, is_settled=False)
        if self._has_old_pods(sets):
            return await self._conclude(deployment, sets, is_settled=False)
        deployment, sets = await self._with_new_set(deployment, sets)
        sets = await self._requests.carry_out(deployment, sets, grow_new(deployment, sets))
        return await self._conclude(deployment, sets, is_settled=True)

    def _has_old_pods(self, sets: SetsOf) -> bool:
        return any(
            replica_set.status.replicas > 0
            or any(
                not is_ended(pod) for pod in self._pods.by_index(OWNER, replica_set.metadata.uid)
            )
            for replica_set in sets.old
        )

    async def _conclude(
        self, deployment: Deployment, sets: SetsOf, *, is_settled: bool
    ) -> float | None:
        if is_settled and progress.is_complete(deployment, deployment.status):
            await self._remove_expired(deployment, sets)
        now = self._clock.now()
        status = progress.rollout_status(deployment, sets, now)
        await self._write_status(deployment, status)
        return progress.seconds_to_deadline(deployment, status, now)

    async def _report_counts(self, deployment: Deployment, sets: SetsOf) -> None:
        status = progress.observed_status(deployment, sets, self._clock.now())
        await self._write_status(deployment, status)

    async def _remove_expired(self, deployment: Deployment, sets: SetsOf) -> None:
        for replica_set in expired_sets(deployment, sets.old):
            meta = replica_set.metadata
            try:
                await self._client.delete(REPLICA_SETS, meta.name, meta.namespace, uid=meta.uid)
            except NotFoundError:
                continue  # Gone already, as wanted.

    async def _with_new_set(
        self, deployment: Deployment, sets: SetsOf
    ) -> tuple[Deployment, SetsOf]:
        """Create or annotate the new ReplicaSet. Returns the Deployment and its sets afterwards."""
        revision = next_revision(sets.old)
        present = sets.new.metadata.annotations if sets.new is not None else {}
        annotations = new_set_annotations(
            deployment, present, revision, is_existing=sets.new is not None
        )
        if sets.new is not None:
            new = await self._requests.annotate(
                sets.new, annotations, deployment.spec.min_ready_seconds
            )
            is_created = False
        else:
            new, is_created = await self._create_set(deployment, sets, annotations)
        deployment = await self._note_new_set(deployment, new, is_created=is_created)
        return deployment, SetsOf(new, sets.old)

    async def _create_set(
        self, deployment: Deployment, sets: SetsOf, annotations: dict[str, str]
    ) -> tuple[ReplicaSet, bool]:
        size = new_set_size(deployment, sets)
        try:
            return await self._requests.create(deployment, annotations, size)
        except HashCollisionError:
            await self._write_status(deployment, with_collision(deployment).status)
            raise
        except StatusError as error:
            if not is_namespace_ending(error) and progress.has_deadline(deployment):
                name = new_set(deployment, annotations, size)["metadata"]["name"]
                await self._note_creation_failure(deployment, creation_failure(name, error))
            raise

    async def _note_creation_failure(self, deployment: Deployment, message: str) -> None:
        condition = progress.condition(
            progress.PROGRESSING, "False", progress.SET_CREATE_ERROR, message, self._clock.now()
        )
        conditions = progress.with_condition(deployment.status.conditions, condition)
        await self._write_status(
            deployment, msgspec.structs.replace(deployment.status, conditions=conditions)
        )

    async def _note_new_set(
        self, deployment: Deployment, new: ReplicaSet, *, is_created: bool
    ) -> Deployment:
        """Write the revision and the Progressing condition about the new set to the Deployment."""
        status = deployment.status
        is_unjudged = progress.find(status.conditions, progress.PROGRESSING) is None
        if progress.has_deadline(deployment) and (is_created or is_unjudged):
            reason, verb = progress.FOUND_NEW_SET, "Found"
            if is_created:
                reason, verb = progress.NEW_SET_CREATED, "Created"
            message = f'{verb} new replica set "{new.metadata.name}"'
            condition = progress.condition(
                progress.PROGRESSING, "True", reason, message, self._clock.now()
            )
            conditions = progress.with_condition(status.conditions, condition)
            status = msgspec.structs.replace(status, conditions=conditions)
        return await self._write_status(
            deployment, status, revision=new.metadata.annotations.get(REVISION, "")
        )

    async def _write_status(
        self, deployment: Deployment, status: DeploymentStatus, *, revision: str = ""
    ) -> Deployment:
        """Write status and revision, if changed. Returns the Deployment afterwards."""
        meta = deployment.metadata
        is_numbered = not revision or meta.annotations.get(REVISION) == revision
        if status == deployment.status and is_numbered:
            return deployment
        patch = status_patch(meta, deployment.status, status)
        if not is_numbered:
            patch["metadata"] = {**locked(meta), "annotations": {REVISION: revision}}
        try:
            return await self._client.patch(
                DEPLOYMENTS, meta.name, patch, meta.namespace, subresource="status"
            )
        except NotFoundError as error:
            # It was deleted meanwhile: nothing to report, and no failure.
            raise ConflictError(f"{meta.namespace}/{meta.name} has just been deleted") from error
