"""Roles. Source: rbac validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import CREATED_AT
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.rbac import rule_errors


def validate_role(role: Obj) -> list[FieldError]:
    """Return the errors of a new Role."""
    return [
        error
        for index, rule in enumerate(role.get("rules", ()))
        for error in rule_errors(rule, f"rules[{index}]", is_namespaced=True)
    ]


def validate_role_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a Role."""
    del old
    return validate_role(new)


ROLE = Kind(
    name="Role",
    plural="roles",
    served=(
        Served(group="rbac.authorization.k8s.io", version="v1", type="io.k8s.api.rbac.v1.Role"),
    ),
    strategy=Strategy(
        validate=validate_role,
        validate_update=validate_role_update,
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=CREATED_AT,
)
