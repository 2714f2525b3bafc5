"""Leases. Source: coordination validation of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy


def validate_lease(lease: Obj) -> list[FieldError]:
    """Return the errors of a new Lease."""
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
    """Return the errors of an update of a Lease."""
    del old
    return validate_lease(new)


def _lease_cells(lease: Obj, now: float) -> list[Any]:
    holder = lease.get("spec", {}).get("holderIdentity") or ""
    return [name_of(lease), holder, age_of(lease, now)]


_PRINTER = Printer(
    columns=(
        NAME,
        Column("Holder", documented_by="io.k8s.api.coordination.v1.LeaseSpec.holderIdentity"),
        AGE,
    ),
    cells=_lease_cells,
)

LEASE = Kind(
    name="Lease",
    plural="leases",
    served=(
        Served(group="coordination.k8s.io", version="v1", type="io.k8s.api.coordination.v1.Lease"),
    ),
    strategy=Strategy(
        validate=validate_lease,
        validate_update=validate_lease_update,
        may_create_on_update=True,
        needs_revision_on_update=True,
    ),
    printer=_PRINTER,
)
