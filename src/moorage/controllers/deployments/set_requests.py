"""Creation and resizing of a Deployment's ReplicaSets, with the events that report it."""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.api.errors import AlreadyExistsError, ConflictError, StatusError
from moorage.api.workloads import Deployment, ReplicaSet
from moorage.controllers.deployments.progress import SET_CREATE_ERROR
from moorage.controllers.deployments.revisions import size_annotations
from moorage.controllers.deployments.rolling import Plan
from moorage.controllers.deployments.sets import SetsOf, replicas_of
from moorage.controllers.ownership import controller_of, controller_reference
from moorage.controllers.requests import is_namespace_ending, locked
from moorage.controllers.templates import (
    is_same_template,
    selector_with_hash,
    template_hash,
    with_hash,
)
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import DEPLOYMENTS, REPLICA_SETS
from moorage.wire.client.rest import Client


class HashCollisionError(ConflictError):
    """Another ReplicaSet has the name that the template's hash makes."""


def new_set(deployment: Deployment, annotations: dict[str, str], size: int) -> dict[str, Any]:
    """Return the ReplicaSet for the Deployment's present template, as JSON."""
    meta, spec = deployment.metadata, deployment.spec
    hash_ = template_hash(spec.template, deployment.status.collision_count or 0)
    template = with_hash(spec.template, hash_)
    return {
        "metadata": {
            "name": f"{meta.name}-{hash_}",
            "namespace": meta.namespace,
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [controller_reference(DEPLOYMENTS, meta)],
        },
        "spec": {
            "replicas": size,
            "minReadySeconds": spec.min_ready_seconds,
            "selector": selector_with_hash(spec.selector, hash_),
            "template": template,
        },
    }


class SetRequests:
    """Creates, resizes and annotates the ReplicaSets of Deployments."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def create(
        self, deployment: Deployment, annotations: dict[str, str], size: int
    ) -> tuple[ReplicaSet, bool]:
        """Create the set for the present template. Returns it and whether it was created now.

        Raises HashCollisionError when its name is taken by another template's set.
        """
        body = new_set(deployment, annotations, size)
        name, namespace = body["metadata"]["name"], deployment.metadata.namespace
        about = reference(DEPLOYMENTS, deployment)
        try:
            created = await self._client.create(REPLICA_SETS, body, namespace)
        except AlreadyExistsError:
            return await self._existing(deployment, name), False
        except StatusError as error:
            if not is_namespace_ending(error):
                message = creation_failure(name, error)
                self._recorder.record(about, WARNING, SET_CREATE_ERROR, message)
            raise
        if size > 0:
            message = f"Scaled up replica set {name} from 0 to {size}"
            self._recorder.record(about, NORMAL, "ScalingReplicaSet", message)
        return created, True

    async def _existing(self, deployment: Deployment, name: str) -> ReplicaSet:
        # Our copy may not have it yet, or a namesake of another template is in the way.
        existing = await self._client.get(REPLICA_SETS, name, deployment.metadata.namespace)
        controller = controller_of(existing.metadata)
        is_ours = controller is not None and controller.uid == deployment.metadata.uid
        if is_ours and is_same_template(existing.spec.template, deployment.spec.template):
            return existing
        raise HashCollisionError(f'replica set "{name}" has another template')

    async def carry_out(self, deployment: Deployment, sets: SetsOf, plan: Plan) -> SetsOf:
        """Resize the sets to a plan. Returns them with their new sizes."""
        by_name = {replica_set.metadata.name: replica_set for replica_set in sets.all}
        for name, size in plan.items():
            by_name[name] = await self._resize(deployment, by_name[name], size)
        new = by_name[sets.new.metadata.name] if sets.new is not None else None
        return SetsOf(new, tuple(by_name[replica_set.metadata.name] for replica_set in sets.old))

    async def _resize(
        self, deployment: Deployment, replica_set: ReplicaSet, size: int
    ) -> ReplicaSet:
        meta, before = replica_set.metadata, replicas_of(replica_set)
        annotations = size_annotations(deployment)
        if size == before and annotations.items() <= meta.annotations.items():
            return replica_set
        patch = {
            "metadata": {**locked(meta), "annotations": annotations},
            "spec": {"replicas": size},
        }
        resized = await self._client.patch(REPLICA_SETS, meta.name, patch, meta.namespace)
        if size != before:
            direction = "up" if size > before else "down"
            message = f"Scaled {direction} replica set {meta.name} from {before} to {size}"
            about = reference(DEPLOYMENTS, deployment)
            self._recorder.record(about, NORMAL, "ScalingReplicaSet", message)
        return resized

    async def annotate(
        self, replica_set: ReplicaSet, annotations: dict[str, str], min_ready_seconds: int
    ) -> ReplicaSet:
        """Set the annotations and minReadySeconds of the set. Returns the set afterwards."""
        meta = replica_set.metadata
        is_same_time = min_ready_seconds == replica_set.spec.min_ready_seconds
        if annotations == meta.annotations and is_same_time:
            return replica_set
        patch = {
            "metadata": {**locked(meta), "annotations": annotations},
            "spec": {"minReadySeconds": min_ready_seconds},
        }
        return await self._client.patch(REPLICA_SETS, meta.name, patch, meta.namespace)


def creation_failure(name: str, error: StatusError) -> str:
    return f'Failed to create new replica set "{name}": {error}'


def with_collision(deployment: Deployment) -> Deployment:
    """Return the Deployment with collisionCount incremented, which changes its next hash."""
    count = (deployment.status.collision_count or 0) + 1
    status = msgspec.structs.replace(deployment.status, collision_count=count)
    return msgspec.structs.replace(deployment, status=status)
