"""ResourceClaim validation, without its status."""

from __future__ import annotations

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.declared import in_order
from moorage.apiserver.registry.validation.device_claims import claim_spec_errors


def validate_resource_claim(claim: Obj) -> list[FieldError]:
    """Return the errors of a new ResourceClaim."""
    return in_order(claim_spec_errors(claim.get("spec", {}), "spec"))


def validate_resource_claim_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: the specification is immutable."""
    if new.get("spec") == old.get("spec"):
        return []
    return [FieldError.invalid("spec", None, "field is immutable")]
