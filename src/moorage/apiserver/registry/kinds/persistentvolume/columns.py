"""Columns of PersistentVolumes."""

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

_SPEC, _STATUS = f"{CORE}.PersistentVolumeSpec", f"{CORE}.PersistentVolumeStatus"


def _claim_text(claim: Obj) -> str:
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}"


PRINTER = printer(
    NAME,
    column("Capacity", "spec.capacity.storage", absent="0", documented_by=f"{_SPEC}.capacity"),
    column("Access Modes", "spec.accessModes", of=_SPEC, show=access_modes_text),
    column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy", of=_SPEC),
    column("Status", phase_text, documented_by=f"{_STATUS}.phase"),
    column("Claim", "spec.claimRef", of=_SPEC, show=_claim_text),
    column("StorageClass", class_text, description="StorageClass of the volume"),
    column(
        "VolumeAttributesClass",
        "spec.volumeAttributesClassName",
        absent=UNSET,
        description="VolumeAttributesClass of the volume",
    ),
    column("Reason", "status.reason", of=_STATUS),
    AGE,
    column("VolumeMode", "spec.volumeMode", of=_SPEC, absent=UNSET, priority=1),
)
