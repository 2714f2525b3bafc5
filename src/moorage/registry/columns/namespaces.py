"""Namespaces: active, or on their way out."""

from __future__ import annotations

from typing import Any

from moorage.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.registry.kind import Column, Obj, Printer


def _namespace_cells(namespace: Obj, now: float) -> list[Any]:
    phase = namespace.get("status", {}).get("phase", "")
    return [name_of(namespace), phase, age_of(namespace, now)]


NAMESPACES = Printer(
    columns=(NAME, Column("Status", description="The status of the namespace"), AGE),
    cells=_namespace_cells,
)
