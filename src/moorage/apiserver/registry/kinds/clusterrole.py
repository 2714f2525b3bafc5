"""ClusterRoles. Source: rbac validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import CREATED_AT
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.rbac import rule_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors


def validate_cluster_role(role: Obj) -> list[FieldError]:
    """Return the errors of a new ClusterRole."""
    errors = [
        error
        for index, rule in enumerate(role.get("rules", ()))
        for error in rule_errors(rule, f"rules[{index}]", is_namespaced=False)
    ]
    aggregation = role.get("aggregationRule")
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors", [])
        path = "aggregationRule.clusterRoleSelectors"
        if not selectors:
            errors.append(
                FieldError.required(
                    path, "at least one clusterRoleSelector required if aggregationRule is non-nil"
                )
            )
        for index, selector in enumerate(selectors):
            errors += label_selector_errors(selector, f"{path}[{index}]")
    return errors


def validate_cluster_role_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a ClusterRole."""
    del old
    return validate_cluster_role(new)


CLUSTER_ROLE = Kind(
    name="ClusterRole",
    plural="clusterroles",
    served=(
        Served(
            group="rbac.authorization.k8s.io", version="v1", type="io.k8s.api.rbac.v1.ClusterRole"
        ),
    ),
    is_namespaced=False,
    strategy=Strategy(
        validate=validate_cluster_role,
        validate_update=validate_cluster_role_update,
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=CREATED_AT,
)
