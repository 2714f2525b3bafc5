"""RoleBindings. Source: rbac validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api import names
from moorage.apiserver.registry.columns.role_bindings import INVALID_ROLE, binding_printer
from moorage.apiserver.registry.declare.rules import update, validator
from moorage.apiserver.registry.defaults.role_binding import default_binding
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.rbac import binding_rows, changed_role_errors


def default_role_binding(binding: Obj) -> None:
    """Set the API defaults of a RoleBinding."""
    default_binding(binding)
    namespace = binding["metadata"].get("namespace")
    for subject in binding.get("subjects", ()):
        if subject.get("kind") == "ServiceAccount" and namespace:
            subject.setdefault("namespace", namespace)


validate_role_binding = validator(*binding_rows("Role", "ClusterRole"))

_PRINTER = binding_printer(
    "roleBinding",
    "RoleRef can reference a Role in the current namespace or a ClusterRole in the global "
    f"namespace. {INVALID_ROLE}",
)

ROLE_BINDING = Kind(
    name="RoleBinding",
    plural="rolebindings",
    served=(
        Served(
            group="rbac.authorization.k8s.io", version="v1", type="io.k8s.api.rbac.v1.RoleBinding"
        ),
    ),
    strategy=Strategy(
        default=default_role_binding,
        validate=validate_role_binding,
        validate_update=update(validate_role_binding, after=changed_role_errors),
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=_PRINTER,
)
