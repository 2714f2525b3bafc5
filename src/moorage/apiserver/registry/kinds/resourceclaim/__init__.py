"""ResourceClaims. Source: resource validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.kinds.resourceclaim.status import (
    default_allocation,
    prepare_resource_claim_status,
    validate_resource_claim_status,
)
from moorage.apiserver.registry.kinds.resourceclaim.validation import (
    validate_resource_claim,
    validate_resource_claim_update,
)
from moorage.apiserver.registry.preparation import drop_status, keep_status
from moorage.apiserver.registry.validation.device_claims import (
    default_claim_spec,
    drop_disabled_claim_fields,
)

_TYPES = "io.k8s.api.resource.v1"


def default_resource_claim(claim: Obj) -> None:
    """Set the API defaults of a ResourceClaim."""
    default_claim_spec(claim.get("spec", {}))
    default_allocation(claim)


def prepare_resource_claim(claim: Obj) -> None:
    """Reset what a new ResourceClaim may not have."""
    drop_status(claim)
    drop_disabled_claim_fields(claim.get("spec", {}))


def prepare_resource_claim_update(new: Obj, old: Obj) -> None:
    """Reset what an update of a ResourceClaim may not change."""
    keep_status(new, old)
    drop_disabled_claim_fields(new.get("spec", {}), old.get("spec", {}))


def _states(claim: Obj) -> str:
    status = claim.get("status", {})
    is_deleted = "deletionTimestamp" in claim.get("metadata", {})
    states = ["deleted"] if is_deleted else []
    if "allocation" in status:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not is_deleted:
        states.append("pending")
    return ",".join(states)


RESOURCE_CLAIM = Kind(
    name="ResourceClaim",
    plural="resourceclaims",
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.ResourceClaim"),),
    strategy=Strategy(
        default=default_resource_claim,
        prepare_create=prepare_resource_claim,
        prepare_update=prepare_resource_claim_update,
        validate=validate_resource_claim,
        validate_update=validate_resource_claim_update,
        parts={"status": PartRules(prepare_resource_claim_status, validate_resource_claim_status)},
        returns_deleted=True,
    ),
    printer=printer(
        NAME,
        column(
            "State",
            _states,
            description="A summary of the current state (allocated, pending, reserved, etc.).",
        ),
        AGE,
    ),
    subresources=status_subresource(),
)
