"""Columns of Scales, the subresource `scale` of kinds; custom resources have them in other words.

Source: printers of `autoscaling/v1` Scale; `scaleTableConvertor` of apiextensions-apiserver.
"""

from __future__ import annotations

from typing import Any

import msgspec

from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import Column, Obj, Printer


def _cells(scale: Obj, now: float) -> list[Any]:
    desired = scale.get("spec", {}).get("replicas", 0)
    available = scale.get("status", {}).get("replicas", 0)
    return [name_of(scale), desired, available, age_of(scale, now)]


SCALE = Printer(
    columns=(
        msgspec.structs.replace(NAME, format=""),
        Column(
            "Desired",
            "integer",
            description="replicas is the desired number of instances for the scaled object.",
        ),
        Column(
            "Available",
            "integer",
            description="replicas is the actual number of observed instances of the scaled object.",
        ),
        AGE,
    ),
    cells=_cells,
)
"""Printer for Scales of built-in kinds."""

CUSTOM_SCALE = Printer(
    columns=(
        NAME,
        Column("Desired", "integer", description="Number of desired replicas"),
        Column("Available", "integer", description="Number of actual replicas"),
        msgspec.structs.replace(AGE, type="date"),
    ),
    cells=_cells,
)
"""Printer for Scales of custom resources."""
