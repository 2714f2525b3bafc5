"""Columns of PersistentVolumes."""

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

_SPEC, _STATUS = f"{CORE}.PersistentVolumeSpec", f"{CORE}.PersistentVolumeStatus"


def _cells(volume: Obj, now: float) -> list[Any]:
    spec = volume.get("spec", {})
    return [
        name_of(volume),
        spec.get("capacity", {}).get("storage", "0"),
        access_modes_text(spec.get("accessModes", ())),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase_text(volume),
        _claim_text(spec.get("claimRef")),
        class_text(volume),
        spec.get("volumeAttributesClassName", UNSET),
        volume.get("status", {}).get("reason", ""),
        age_of(volume, now),
        spec.get("volumeMode", UNSET),
    ]


def _claim_text(claim: Obj | None) -> str:
    if claim is None:
        return ""
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}"


PRINTER = Printer(
    columns=(
        NAME,
        Column("Capacity", documented_by=f"{_SPEC}.capacity"),
        Column("Access Modes", documented_by=f"{_SPEC}.accessModes"),
        Column("Reclaim Policy", documented_by=f"{_SPEC}.persistentVolumeReclaimPolicy"),
        Column("Status", documented_by=f"{_STATUS}.phase"),
        Column("Claim", documented_by=f"{_SPEC}.claimRef"),
        Column("StorageClass", description="StorageClass of the volume"),
        Column("VolumeAttributesClass", description="VolumeAttributesClass of the volume"),
        Column("Reason", documented_by=f"{_STATUS}.reason"),
        AGE,
        Column("VolumeMode", priority=1, documented_by=f"{_SPEC}.volumeMode"),
    ),
    cells=_cells,
)
