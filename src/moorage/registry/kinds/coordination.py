"""The coordination group: leases."""

from __future__ import annotations

from moorage.registry import columns, validation
from moorage.registry.kind import Kind, Served, Strategy

LEASE = Kind(
    name="Lease",
    plural="leases",
    served=(
        Served(group="coordination.k8s.io", version="v1", type="io.k8s.api.coordination.v1.Lease"),
    ),
    strategy=Strategy(
        validate=validation.validate_lease,
        validate_update=validation.validate_lease_update,
        may_create_on_update=True,
        needs_revision_on_update=True,
    ),
    printer=columns.LEASES,
)
