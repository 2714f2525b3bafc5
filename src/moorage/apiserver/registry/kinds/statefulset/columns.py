"""Columns of StatefulSets."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    age_of,
    container_cells,
    name_of,
)
from moorage.apiserver.registry.kind import Column, Obj, Printer


def _stateful_set_cells(stateful_set: Obj, now: float) -> list[Any]:
    spec, status = stateful_set.get("spec", {}), stateful_set.get("status", {})
    return [
        name_of(stateful_set),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        age_of(stateful_set, now),
        *container_cells(spec.get("template", {})),
    ]


PRINTER = Printer(
    columns=(
        NAME,
        Column("Ready", description="Number of the pod with ready state"),
        AGE,
        CONTAINERS,
        IMAGES,
    ),
    cells=_stateful_set_cells,
)
