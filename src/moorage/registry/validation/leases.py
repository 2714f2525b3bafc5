"""Leases. Source: coordination validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api.errors import FieldError
from moorage.registry.kind import Obj


def validate_lease(lease: Obj) -> list[FieldError]:
    spec = lease.get("spec", {})
    errors: list[FieldError] = []
    if spec.get("holderIdentity") == "":
        errors.append(FieldError.invalid("spec.holderIdentity", "", "must not be empty"))
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        errors.append(
            FieldError.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
        )
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        errors.append(
            FieldError.invalid(
                "spec.leaseTransitions", transitions, "must be greater than or equal to 0"
            )
        )
    return errors


def validate_lease_update(new: Obj, old: Obj) -> list[FieldError]:
    del old
    return validate_lease(new)
