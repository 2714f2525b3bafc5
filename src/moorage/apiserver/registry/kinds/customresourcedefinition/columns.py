"""The table of CustomResourceDefinitions."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import CREATED_AT, NAME
from moorage.apiserver.registry.kind import Column, Obj, Printer


def is_established(definition: Obj) -> bool:
    """Return whether the definition's names are accepted and its resources served."""
    return any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in definition.get("status", {}).get("conditions", ())
    )


def _cells(definition: Obj, now: float) -> list[Any]:
    name, created_at = CREATED_AT.cells(definition, now)
    spec = definition.get("spec", {})
    names = spec.get("names", {})
    versions = sorted(
        version.get("name", "") + ("(storage)" if version.get("storage") else "")
        for version in spec.get("versions", ())
        if version.get("served")
    )
    return [
        name,
        spec.get("scope", ""),
        ",".join(versions),
        created_at,
        spec.get("group", ""),
        names.get("kind", ""),
        ",".join(names.get("shortNames", ())),
        is_established(definition),
    ]


PRINTER = Printer(
    columns=(
        NAME,
        Column("Scope", description="Cluster/Namespaced"),
        Column("Versions", description="Served versions"),
        CREATED_AT.columns[1],
        Column("Group", description="API group", priority=1),
        Column("Kind", description="CustomResource kind", priority=1),
        Column("ShortNames", description="Short names", priority=1),
        Column("Established", "boolean", description="Established status", priority=1),
    ),
    cells=_cells,
)
