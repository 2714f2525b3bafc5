"""RuntimeClasses: the handler that each names."""

from __future__ import annotations

from typing import Any

from moorage.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.registry.kind import Column, Obj, Printer


def _runtime_class_cells(runtime_class: Obj, now: float) -> list[Any]:
    return [name_of(runtime_class), runtime_class.get("handler", ""), age_of(runtime_class, now)]


RUNTIME_CLASSES = Printer(columns=(NAME, Column("Handler"), AGE), cells=_runtime_class_cells)
