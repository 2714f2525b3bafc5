"""PriorityClasses: their value, and whether one is everybody's default."""

from __future__ import annotations

from typing import Any

from moorage.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.registry.kind import Column, Obj, Printer

_TYPE = "io.k8s.api.scheduling.v1.PriorityClass"


def _priority_class_cells(priority_class: Obj, now: float) -> list[Any]:
    return [
        name_of(priority_class),
        priority_class.get("value", 0),
        priority_class.get("globalDefault", False),
        age_of(priority_class, now),
        priority_class.get("preemptionPolicy") or "",
    ]


PRIORITY_CLASSES = Printer(
    columns=(
        NAME,
        Column("Value", "integer", documented_by=f"{_TYPE}.value"),
        Column("Global-Default", "boolean", documented_by=f"{_TYPE}.globalDefault"),
        AGE,
        Column("PreemptionPolicy", documented_by=f"{_TYPE}.preemptionPolicy"),
    ),
    cells=_priority_class_cells,
)
