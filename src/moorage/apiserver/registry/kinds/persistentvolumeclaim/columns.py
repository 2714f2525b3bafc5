"""Columns of PersistentVolumeClaims."""

from __future__ import annotations

from moorage.apiserver.registry.columns.cells import CORE
from moorage.apiserver.registry.columns.volumes import (
    UNSET,
    access_modes_text,
    class_text,
    phase_text,
)
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import Obj

_SPEC, _STATUS = f"{CORE}.PersistentVolumeClaimSpec", f"{CORE}.PersistentVolumeClaimStatus"


def _capacity(claim: Obj) -> str:
    # What a volume has is shown of claims that name one.
    if not claim.get("spec", {}).get("volumeName"):
        return ""
    return str(claim.get("status", {}).get("capacity", {}).get("storage", "0"))


def _access_modes(claim: Obj) -> str:
    if not claim.get("spec", {}).get("volumeName"):
        return ""
    return access_modes_text(claim.get("status", {}).get("accessModes", ()))


PRINTER = printer(
    NAME,
    column("Status", phase_text, documented_by=f"{_STATUS}.phase"),
    column("Volume", "spec.volumeName", of=_SPEC),
    column("Capacity", _capacity, documented_by=f"{_STATUS}.capacity"),
    column("Access Modes", _access_modes, documented_by=f"{_STATUS}.accessModes"),
    column("StorageClass", class_text, description="StorageClass of the claim"),
    column(
        "VolumeAttributesClass",
        "spec.volumeAttributesClassName",
        absent=UNSET,
        description="VolumeAttributesClass of the claim",
    ),
    AGE,
    column("VolumeMode", "spec.volumeMode", of=_SPEC, absent=UNSET, priority=1),
)
