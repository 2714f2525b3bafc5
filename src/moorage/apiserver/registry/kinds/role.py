"""Roles. Source: rbac validation of Kubernetes 1.36."""

from __future__ import annotations

from functools import partial

from moorage.api import names
from moorage.apiserver.registry.columns.cells import CREATED_AT
from moorage.apiserver.registry.declare.rules import update, validator
from moorage.apiserver.registry.kind import Kind, Served, Strategy
from moorage.apiserver.registry.validation.rbac import rule_errors

validate_role = validator(("rules[*]", partial(rule_errors, is_namespaced=True)))

ROLE = Kind(
    name="Role",
    plural="roles",
    served=(
        Served(group="rbac.authorization.k8s.io", version="v1", type="io.k8s.api.rbac.v1.Role"),
    ),
    strategy=Strategy(
        validate=validate_role,
        validate_update=update(validate_role),
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=CREATED_AT,
)
