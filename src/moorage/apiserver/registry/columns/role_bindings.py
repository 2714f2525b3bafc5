"""Role binding columns, shared by RoleBinding and ClusterRoleBinding."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import Column, Obj, Printer

INVALID_ROLE = "If the RoleRef cannot be resolved, the Authorizer must return an error."


def _binding_cells(binding: Obj, now: float) -> list[Any]:
    role = binding.get("roleRef", {})
    subjects = binding.get("subjects") or ()
    return [
        name_of(binding),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age_of(binding, now),
        _names(subjects, "User"),
        _names(subjects, "Group"),
        ", ".join(
            f"{subject.get('namespace', '')}/{subject.get('name', '')}"
            for subject in subjects
            if subject.get("kind") == "ServiceAccount"
        ),
    ]


def _names(subjects: Any, kind: str) -> str:
    return ", ".join(subject.get("name", "") for subject in subjects if subject.get("kind") == kind)


def binding_printer(owner: str, role: str) -> Printer:
    """Return the printer of a binding kind; `owner` and `role` go into column descriptions."""
    return Printer(
        columns=(
            NAME,
            Column("Role", description=role),
            AGE,
            Column("Users", description=f"Users in the {owner}", priority=1),
            Column("Groups", description=f"Groups in the {owner}", priority=1),
            Column("ServiceAccounts", description=f"ServiceAccounts in the {owner}", priority=1),
        ),
        cells=_binding_cells,
    )
