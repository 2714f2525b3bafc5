"""ClusterRoleBindings. Source: rbac validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api import names
from moorage.apiserver.registry.columns.role_bindings import INVALID_ROLE, binding_printer
from moorage.apiserver.registry.declare.rules import update, validator
from moorage.apiserver.registry.defaults.role_binding import default_binding
from moorage.apiserver.registry.kind import Kind, Served, Strategy
from moorage.apiserver.registry.validation.rbac import binding_rows, changed_role_errors

validate_cluster_role_binding = validator(*binding_rows("ClusterRole"))

_PRINTER = binding_printer(
    "clusterRoleBinding",
    f"RoleRef can only reference a ClusterRole in the global namespace. {INVALID_ROLE}",
)

CLUSTER_ROLE_BINDING = Kind(
    name="ClusterRoleBinding",
    plural="clusterrolebindings",
    served=(
        Served(
            group="rbac.authorization.k8s.io",
            version="v1",
            type="io.k8s.api.rbac.v1.ClusterRoleBinding",
        ),
    ),
    is_namespaced=False,
    strategy=Strategy(
        default=default_binding,
        validate=validate_cluster_role_binding,
        validate_update=update(validate_cluster_role_binding, after=changed_role_errors),
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=_PRINTER,
)
