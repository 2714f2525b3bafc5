"""Leases. Source: coordination validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    at_least,
    not_negative,
    satisfies,
    update,
    validator,
)
from moorage.apiserver.registry.kind import Kind, Served, Strategy

_TYPES = "io.k8s.api.coordination.v1"

validate_lease = validator(
    ("spec.holderIdentity", satisfies(bool, "must not be empty")),
    ("spec.leaseDurationSeconds", at_least(1, "must be greater than 0")),
    ("spec.leaseTransitions", not_negative),
)

LEASE = Kind(
    name="Lease",
    plural="leases",
    served=(Served("coordination.k8s.io", "v1", f"{_TYPES}.Lease"),),
    strategy=Strategy(
        validate=validate_lease,
        validate_update=update(validate_lease),
        may_create_on_update=True,
        needs_revision_on_update=True,
    ),
    printer=printer(NAME, column("Holder", "spec.holderIdentity", of=f"{_TYPES}.LeaseSpec"), AGE),
)
