"""Role binding columns, shared by RoleBinding and ClusterRoleBinding."""

from __future__ import annotations

from collections.abc import Callable

from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import Obj, Printer

INVALID_ROLE = "If the RoleRef cannot be resolved, the Authorizer must return an error."


def _role_text(role: Obj) -> str:
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _names_of(kind: str) -> Callable[[list[Obj]], str]:
    return lambda subjects: ", ".join(
        subject.get("name", "") for subject in subjects if subject.get("kind") == kind
    )


def _accounts(subjects: list[Obj]) -> str:
    return ", ".join(
        f"{subject.get('namespace', '')}/{subject.get('name', '')}"
        for subject in subjects
        if subject.get("kind") == "ServiceAccount"
    )


def binding_printer(owner: str, role: str) -> Printer:
    """Return the printer of a binding kind; `owner` and `role` go into column descriptions."""
    return printer(
        NAME,
        column("Role", "roleRef", absent="/", show=_role_text, description=role),
        AGE,
        *(
            column(name, "subjects", show=show, description=f"{name} in the {owner}", priority=1)
            for name, show in (
                ("Users", _names_of("User")),
                ("Groups", _names_of("Group")),
                ("ServiceAccounts", _accounts),
            )
        ),
    )
