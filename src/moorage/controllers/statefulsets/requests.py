"""Requests of a StatefulSet: pods and their claims, with the events that report them.

Source: `stateful_pod_control`, whose reasons and messages the events have.
"""

from __future__ import annotations

from typing import Any

from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError, StatusError
from moorage.api.meta import ObjectMeta, Raw
from moorage.api.persistent_volumes import PersistentVolumeClaim
from moorage.api.workloads import StatefulSet
from moorage.controllers.objects import CLAIMS, PODS, Pod
from moorage.controllers.patches import locked
from moorage.controllers.refusals import is_namespace_ending
from moorage.controllers.statefulsets.claims import (
    claim_names,
    claims_of,
    has_conflict,
    owners_after,
)
from moorage.controllers.statefulsets.identity import (
    POD_NAME,
    identity_labels,
    member_pod,
    ordinal_of,
    pod_name,
)
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import STATEFUL_SETS
from moorage.wire.client.rest import Client, UnreachableError

Failure = StatusError | UnreachableError


class MemberRequests:
    """Creates, repairs and deletes the pods of StatefulSets, and their claims."""

    def __init__(
        self, client: Client, recorder: EventRecorder, claims: Informer[PersistentVolumeClaim]
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._claims = claims

    async def create(
        self, stateful_set: StatefulSet, template: Raw, ordinal: int, revision: str
    ) -> None:
        """Create the pod with an ordinal, after its claims.

        Raises StatusError or UnreachableError, after an event unless the pod exists already or
        the namespace is terminating.
        """
        name, namespace = pod_name(stateful_set, ordinal), stateful_set.metadata.namespace
        body = member_pod(stateful_set, template, ordinal, revision)
        try:
            await self._create_claims(stateful_set, ordinal)
            await self._client.create(PODS, body, namespace)
        except AlreadyExistsError:
            raise
        except (StatusError, UnreachableError) as error:
            if not is_namespace_ending(error):
                self._record(stateful_set, "Create", name, error)
            raise
        self._record(stateful_set, "Create", name)

    async def delete(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """Delete a pod of the set.

        Raises StatusError or UnreachableError, after an event unless the pod is gone.
        """
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            await self._client.delete(PODS, name, namespace, uid=pod.metadata.uid)
        except NotFoundError:
            raise
        except (StatusError, UnreachableError) as error:
            self._record(stateful_set, "Delete", name, error)
            raise
        self._record(stateful_set, "Delete", name)

    async def complete_claims(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """Create the claims that a pending pod waits for. Raises StatusError."""
        ordinal = ordinal_of(pod.metadata)
        assert ordinal is not None
        await self._create_claims(stateful_set, ordinal)

    async def repair(self, stateful_set: StatefulSet, pod: Pod) -> None:
        """Give the pod its identity's labels and its claims their owners, if they differ.

        Raises StatusError or UnreachableError, after an event.
        """
        try:
            is_changed = await self._own_claims(stateful_set, pod.metadata)
            is_changed |= await self._label(pod)
        except NotFoundError:
            return  # It was deleted meanwhile.
        except (StatusError, UnreachableError) as error:
            self._record(stateful_set, "Update", pod.metadata.name, error)
            raise
        if is_changed:
            self._record(stateful_set, "Update", pod.metadata.name)

    async def _label(self, pod: Pod) -> bool:
        meta, ordinal = pod.metadata, ordinal_of(pod.metadata)
        if ordinal is None or meta.labels.get(POD_NAME) == meta.name:
            return False
        patch = {"metadata": {"uid": meta.uid, "labels": identity_labels(meta.name, ordinal)}}
        await self._client.patch(PODS, meta.name, patch, meta.namespace)
        return True

    async def _own_claims(self, stateful_set: StatefulSet, pod: ObjectMeta) -> bool:
        ordinal, is_changed = ordinal_of(pod), False
        for name in claim_names(stateful_set, ordinal) if ordinal is not None else ():
            claim = self._claims.get(name, pod.namespace)
            if claim is None:
                continue
            owners = owners_after(claim.metadata, stateful_set, pod)
            if owners is None:
                continue
            if has_conflict(claim.metadata, stateful_set, pod):
                self._warn_of_conflict(stateful_set, name)
            patch = {"metadata": {**locked(claim.metadata), "ownerReferences": owners}}
            await self._client.patch(CLAIMS, name, patch, pod.namespace)
            is_changed = True
        return is_changed

    async def _create_claims(self, stateful_set: StatefulSet, ordinal: int) -> None:
        namespace, failure = stateful_set.metadata.namespace, None
        for name, body in claims_of(stateful_set, ordinal).items():
            claim = self._claims.get(name, namespace)
            try:
                if claim is None:
                    await self._create_claim(stateful_set, ordinal, name, body)
                elif claim.metadata.deletion_timestamp is not None:
                    raise ConflictError(f"pvc {name} is being deleted")
            except (StatusError, UnreachableError) as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _create_claim(
        self, stateful_set: StatefulSet, ordinal: int, name: str, body: dict[str, Any]
    ) -> None:
        about = reference(STATEFUL_SETS, stateful_set)
        own, pod = stateful_set.metadata.name, pod_name(stateful_set, ordinal)
        try:
            await self._client.create(CLAIMS, body, stateful_set.metadata.namespace)
        except AlreadyExistsError:
            return  # Our copy does not have it yet.
        except (StatusError, UnreachableError) as error:
            if not is_namespace_ending(error):
                message = (
                    f"Create Claim {name} for Pod {pod} in StatefulSet {own} failed error: {error}"
                )
                self._recorder.record(about, WARNING, "FailedCreate", message)
            raise
        message = f"Create Claim {name} Pod {pod} in StatefulSet {own} success"
        self._recorder.record(about, NORMAL, "SuccessfulCreate", message)

    def _record(
        self, stateful_set: StatefulSet, verb: str, pod: str, error: Failure | None = None
    ) -> None:
        about, own = reference(STATEFUL_SETS, stateful_set), stateful_set.metadata.name
        if error is None:
            message = f"{verb} Pod {pod} in StatefulSet {own} successful"
            self._recorder.record(about, NORMAL, f"Successful{verb}", message)
            return
        message = f"{verb} Pod {pod} in StatefulSet {own} failed error: {error}"
        self._recorder.record(about, WARNING, f"Failed{verb}", message)

    def _warn_of_conflict(self, stateful_set: StatefulSet, claim: str) -> None:
        message = (
            f"PersistentVolumeClaim {claim} has a conflicting OwnerReference that acts as a "
            "manging controller, the retention policy is ignored for this claim"
        )
        about = reference(STATEFUL_SETS, stateful_set)
        self._recorder.record(about, WARNING, "ConflictingController", message)
