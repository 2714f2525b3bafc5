"""The rbac group: roles and bindings."""

from __future__ import annotations

from moorage.api import names
from moorage.registry import columns, defaults, validation
from moorage.registry.kind import Kind, Served, Strategy

_GROUP = "rbac.authorization.k8s.io"


def _served(kind: str) -> tuple[Served, ...]:
    return (Served(group=_GROUP, version="v1", type=f"io.k8s.api.rbac.v1.{kind}"),)


ROLE = Kind(
    name="Role",
    plural="roles",
    served=_served("Role"),
    strategy=Strategy(
        validate=validation.validate_role,
        validate_update=validation.validate_role_update,
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=columns.CREATED_AT,
)

CLUSTER_ROLE = Kind(
    name="ClusterRole",
    plural="clusterroles",
    served=_served("ClusterRole"),
    is_namespaced=False,
    strategy=Strategy(
        validate=validation.validate_cluster_role,
        validate_update=validation.validate_cluster_role_update,
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=columns.CREATED_AT,
)

ROLE_BINDING = Kind(
    name="RoleBinding",
    plural="rolebindings",
    served=_served("RoleBinding"),
    strategy=Strategy(
        default=defaults.default_role_binding,
        validate=validation.validate_role_binding,
        validate_update=validation.validate_role_binding_update,
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=columns.ROLE_BINDINGS,
)

CLUSTER_ROLE_BINDING = Kind(
    name="ClusterRoleBinding",
    plural="clusterrolebindings",
    served=_served("ClusterRoleBinding"),
    is_namespaced=False,
    strategy=Strategy(
        default=defaults.default_cluster_role_binding,
        validate=validation.validate_cluster_role_binding,
        validate_update=validation.validate_cluster_role_binding_update,
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=columns.CLUSTER_ROLE_BINDINGS,
)
