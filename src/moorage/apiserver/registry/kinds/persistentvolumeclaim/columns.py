"""Columns of PersistentVolumeClaims."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import AGE, CORE, NAME, age_of, name_of
from moorage.apiserver.registry.columns.volumes import (
    UNSET,
    access_modes_text,
    class_text,
    phase_text,
)
from moorage.apiserver.registry.kind import Column, Obj, Printer

_SPEC, _STATUS = f"{CORE}.PersistentVolumeClaimSpec", f"{CORE}.PersistentVolumeClaimStatus"


def _cells(claim: Obj, now: float) -> list[Any]:
    spec, status = claim.get("spec", {}), claim.get("status", {})
    volume = spec.get("volumeName", "")
    # What a volume has is shown of claims that name one.
    capacity = status.get("capacity", {}).get("storage", "0") if volume else ""
    return [
        name_of(claim),
        phase_text(claim),
        volume,
        capacity,
        access_modes_text(status.get("accessModes", ()) if volume else ()),
        class_text(claim),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(claim, now),
        spec.get("volumeMode", UNSET),
    ]


PRINTER = Printer(
    columns=(
        NAME,
        Column("Status", documented_by=f"{_STATUS}.phase"),
        Column("Volume", documented_by=f"{_SPEC}.volumeName"),
        Column("Capacity", documented_by=f"{_STATUS}.capacity"),
        Column("Access Modes", documented_by=f"{_STATUS}.accessModes"),
        Column("StorageClass", description="StorageClass of the claim"),
        Column("VolumeAttributesClass", description="VolumeAttributesClass of the claim"),
        AGE,
        Column("VolumeMode", priority=1, documented_by=f"{_SPEC}.volumeMode"),
    ),
    cells=_cells,
)
