"""Leases: who holds them."""

from __future__ import annotations

from typing import Any

from moorage.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.registry.kind import Column, Obj, Printer


def _lease_cells(lease: Obj, now: float) -> list[Any]:
    holder = lease.get("spec", {}).get("holderIdentity") or ""
    return [name_of(lease), holder, age_of(lease, now)]


LEASES = Printer(
    columns=(
        NAME,
        Column("Holder", documented_by="io.k8s.api.coordination.v1.LeaseSpec.holderIdentity"),
        AGE,
    ),
    cells=_lease_cells,
)
