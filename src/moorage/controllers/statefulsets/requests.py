"""Requests of a StatefulSet: pods and their claims, with the events that report them.

Source: `stateful_pod_control`, whose reasons and messages the events have.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from moorage.api.errors import AlreadyExistsError, ConflictError, NotFoundError, StatusError
from moorage.api.meta import ObjectMeta, OwnerReference, Raw
from moorage.api.persistent_volumes import PersistentVolumeClaim
from moorage.api.workloads import StatefulSet
from moorage.controllers.objects import CLAIMS, PODS, Pod
from moorage.controllers.ownership import controller_reference
from moorage.controllers.requests import is_namespace_ending, locked
from moorage.controllers.statefulsets.planning import (
    POD_NAME,
    claim_name,
    claim_templates,
    identity_labels,
    member_pod,
    ordinal_of,
    ordinals_of,
    parent_and_ordinal,
    pod_name,
)
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import STATEFUL_SETS, Resource
from moorage.wire.client.rest import Client, UnreachableError

# Claims of a StatefulSet's pods: what is created, and who owns them.
#
# The retention policy is carried out by owner references: a claim that should go with the set is
# controlled by the set, one that should go with its pod, when that is scaled away, by the pod; the
# garbage collector does the rest. Source: KEP-1847.

_DELETE = "Delete"


def claim_names(stateful_set: StatefulSet, ordinal: int) -> list[str]:
    """Return the names of the claims of the pod with an ordinal."""
    return [claim_name(name, stateful_set, ordinal) for name in claim_templates(stateful_set)]


def claims_of(stateful_set: StatefulSet, ordinal: int) -> dict[str, Raw]:
    """Return the claims of a pod of the set, as JSON, by name."""
    selected = (stateful_set.spec.selector or {}).get("matchLabels") or {}
    owners = [controller_reference(STATEFUL_SETS, stateful_set.metadata)]
    claims = {}
    for name, template in claim_templates(stateful_set).items():
        described = template.get("metadata") or {}
        metadata = {
            **described,
            "name": claim_name(name, stateful_set, ordinal),
            "namespace": stateful_set.metadata.namespace,
            "labels": {**(described.get("labels") or {}), **selected},
        }
        if _goes_with_set(stateful_set, is_scaled_away=False):
            metadata["ownerReferences"] = owners
        claims[metadata["name"]] = {"metadata": metadata, "spec": template.get("spec") or {}}
    return claims


def is_claim_of(stateful_set: StatefulSet, name: str) -> bool:
    """Return whether a claim has a name that the set gives to its claims."""
    parent, ordinal = parent_and_ordinal(name)
    own = stateful_set.metadata.name
    return ordinal is not None and any(
        parent == f"{template}-{own}" for template in claim_templates(stateful_set)
    )


def is_stale(stateful_set: StatefulSet, ordinal: int, claims: Iterable[ObjectMeta]) -> bool:
    """Return whether claims of a pod still to be created go with an earlier pod of its name."""
    if stateful_set.spec.persistent_volume_claim_retention_policy.when_scaled != _DELETE:
        return False
    absent = ObjectMeta(name=pod_name(stateful_set, ordinal))
    return any(_names(claim, PODS, absent) for claim in claims)


def has_conflict(claim: ObjectMeta, stateful_set: StatefulSet, pod: ObjectMeta) -> bool:
    """Return whether the claim has a controller other than the set and the pod.

    Under a policy that retains all claims no controller is in the way.
    """
    policy = stateful_set.spec.persistent_volume_claim_retention_policy
    own = (stateful_set.metadata.uid, pod.uid)
    return _DELETE in (policy.when_deleted, policy.when_scaled) and any(
        reference.controller and reference.uid not in own for reference in claim.owner_references
    )


def owners_after(
    claim: ObjectMeta, stateful_set: StatefulSet, pod: ObjectMeta
) -> list[dict[str, Any]] | None:
    """Return the claim's owner references, as JSON, that the policy asks for.

    None stands for those that it has: they are right, or they name an earlier set or pod, whose
    claims are left to the garbage collector.
    """
    meta = stateful_set.metadata
    if _is_of_namesake(claim, STATEFUL_SETS, meta) or _is_of_namesake(claim, PODS, pod):
        return None
    wanted = [] if has_conflict(claim, stateful_set, pod) else _wanted(stateful_set, pod)
    own = [one for one in claim.owner_references if one.uid in (meta.uid, pod.uid)]
    if {one.uid for one in own} == {one["uid"] for one in wanted} and all(
        one.controller for one in own
    ):
        return None
    others = [one for one in claim.owner_references if one not in own]
    return [*msgspec.to_builtins(others), *wanted]


def _wanted(stateful_set: StatefulSet, pod: ObjectMeta) -> list[dict[str, Any]]:
    policy = stateful_set.spec.persistent_volume_claim_retention_policy
    is_scaled_away = ordinal_of(pod) not in ordinals_of(stateful_set)
    owners = []
    if _goes_with_set(stateful_set, is_scaled_away=is_scaled_away):
        owners.append(controller_reference(STATEFUL_SETS, stateful_set.metadata))
    if policy.when_scaled == _DELETE and is_scaled_away:
        owners.append(controller_reference(PODS, pod))
    return owners


def _goes_with_set(stateful_set: StatefulSet, *, is_scaled_away: bool) -> bool:
    policy = stateful_set.spec.persistent_volume_claim_retention_policy
    is_the_pods = policy.when_scaled == _DELETE and is_scaled_away
    return policy.when_deleted == _DELETE and not is_the_pods


def _names(claim: ObjectMeta, resource: Resource[Any], meta: ObjectMeta) -> OwnerReference | None:
    """Return the claim's reference to an object of this kind and name, whatever its uid."""
    identity = (resource.api_version, resource.kind, meta.name)
    return next(
        (
            reference
            for reference in claim.owner_references
            if (reference.api_version, reference.kind, reference.name) == identity
        ),
        None,
    )


def _is_of_namesake(claim: ObjectMeta, resource: Resource[Any], meta: ObjectMeta) -> bool:
    reference = _names(claim, resource, meta)
    return reference is not None and reference.uid != meta.uid


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
