"""ResourceClaims and their templates. Source: resource validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.kinds.resourceclaim.spec import (
    claim_spec_errors,
    default_claim_spec,
    drop_disabled_claim_fields,
)
from moorage.apiserver.registry.kinds.resourceclaim.status import (
    default_allocation,
    prepare_resource_claim_status,
    validate_resource_claim_status,
)
from moorage.apiserver.registry.preparation import drop_status, keep_status
from moorage.apiserver.registry.validation.declared import DeclaredError, in_order
from moorage.apiserver.registry.validation.metadata import embedded_metadata_errors

_TYPES = "io.k8s.api.resource.v1"


def validate_resource_claim(claim: Obj) -> list[FieldError]:
    """Return the errors of a new ResourceClaim."""
    return in_order(claim_spec_errors(claim.get("spec", {}), "spec"))


def validate_resource_claim_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: the specification is immutable."""
    if new.get("spec") == old.get("spec"):
        return []
    return [FieldError.invalid("spec", None, "field is immutable")]


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
    served=(Served("resource.k8s.io", "v1", f"{_TYPES}.ResourceClaim"),),
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


def _claim_spec(template: Obj) -> Obj:
    spec: Obj = template.get("spec", {}).get("spec", {})
    return spec


def default_resource_claim_template(template: Obj) -> None:
    """Set the API defaults of a ResourceClaimTemplate."""
    default_claim_spec(_claim_spec(template))


def prepare_resource_claim_template(template: Obj) -> None:
    """Reset what a new ResourceClaimTemplate may not have."""
    drop_disabled_claim_fields(_claim_spec(template))


def prepare_resource_claim_template_update(new: Obj, old: Obj) -> None:
    """Reset what an update of a ResourceClaimTemplate may not add."""
    drop_disabled_claim_fields(_claim_spec(new), _claim_spec(old))


def validate_resource_claim_template(template: Obj) -> list[FieldError]:
    """Return the errors of a new ResourceClaimTemplate."""
    return in_order(_template_errors(template))


def validate_resource_claim_template_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: those of the new one, whose specification is immutable."""
    errors = [*_template_errors(new)]
    if new.get("spec") == old.get("spec"):
        # Declared rules do not look at what is unchanged.
        return [error for error in errors if not isinstance(error, DeclaredError)]
    return in_order([*errors, FieldError.invalid("spec", new["spec"], "field is immutable")])


def _template_errors(template: Obj) -> Iterator[FieldError]:
    meta = template.get("spec", {}).get("metadata", {})
    yield from embedded_metadata_errors(meta, "spec.metadata")
    yield from claim_spec_errors(_claim_spec(template), "spec.spec")


RESOURCE_CLAIM_TEMPLATE = Kind(
    name="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    served=(Served("resource.k8s.io", "v1", f"{_TYPES}.ResourceClaimTemplate"),),
    strategy=Strategy(
        default=default_resource_claim_template,
        prepare_create=prepare_resource_claim_template,
        prepare_update=prepare_resource_claim_template_update,
        validate=validate_resource_claim_template,
        validate_update=validate_resource_claim_template_update,
        returns_deleted=True,
    ),
    printer=printer(NAME, AGE),
)
