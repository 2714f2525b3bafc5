"""Columns of Scales, the subresource `scale` of kinds; custom resources have them in other words.

Source: printers of `autoscaling/v1` Scale; `scaleTableConvertor` of apiextensions-apiserver.
"""

from __future__ import annotations

from msgspec.structs import replace

from moorage.apiserver.registry.declare.columns import AGE, NAME, Shown, column, printer
from moorage.apiserver.registry.kind import Printer


def _scale_printer(name: Shown, desired: str, available: str, age: Shown) -> Printer:
    return printer(
        name,
        column("Desired", "spec.replicas", "integer", description=desired),
        column("Available", "status.replicas", "integer", description=available),
        age,
    )


SCALE = _scale_printer(
    Shown(replace(NAME.column, format=""), NAME.cell),
    "replicas is the desired number of instances for the scaled object.",
    "replicas is the actual number of observed instances of the scaled object.",
    AGE,
)
"""Printer for Scales of built-in kinds."""

CUSTOM_SCALE = _scale_printer(
    NAME,
    "Number of desired replicas",
    "Number of actual replicas",
    Shown(replace(AGE.column, type="date"), AGE.cell),
)
"""Printer for Scales of custom resources."""
