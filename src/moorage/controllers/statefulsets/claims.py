"""Claims of a StatefulSet's pods: what is created, and who owns them.

The retention policy is carried out by owner references: a claim that should go with the set is
controlled by the set, one that should go with its pod, when that is scaled away, by the pod; the
garbage collector does the rest. Source: KEP-1847.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from moorage.api.meta import ObjectMeta, OwnerReference, Raw
from moorage.api.workloads import StatefulSet
from moorage.controllers.objects import PODS
from moorage.controllers.ownership import controller_reference
from moorage.controllers.statefulsets.identity import (
    claim_name,
    claim_templates,
    ordinal_of,
    ordinals_of,
    parent_and_ordinal,
    pod_name,
)
from moorage.wire.client.resources import STATEFUL_SETS, Resource

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
