"""The table of CustomResourceDefinitions."""

from __future__ import annotations

from moorage.apiserver.registry.declare.columns import CREATED_AT, NAME, column, printer
from moorage.apiserver.registry.kind import Obj


def is_established(definition: Obj) -> bool:
    """Return whether the definition's names are accepted and its resources served."""
    return any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in definition.get("status", {}).get("conditions", ())
    )


def _versions_text(versions: list[Obj]) -> str:
    return ",".join(
        sorted(
            version.get("name", "") + ("(storage)" if version.get("storage") else "")
            for version in versions
            if version.get("served")
        )
    )


PRINTER = printer(
    NAME,
    column("Scope", "spec.scope", description="Cluster/Namespaced"),
    column("Versions", "spec.versions", show=_versions_text, description="Served versions"),
    CREATED_AT,
    column("Group", "spec.group", description="API group", priority=1),
    column("Kind", "spec.names.kind", description="CustomResource kind", priority=1),
    column(
        "ShortNames",
        "spec.names.shortNames",
        show=",".join,
        description="Short names",
        priority=1,
    ),
    column(
        "Established",
        is_established,
        "boolean",
        description="Established status",
        priority=1,
    ),
)
