"""Roles, ClusterRoles and their bindings. Source: rbac validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import CREATED_AT
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    Row,
    always_text,
    follows,
    one_of,
    required,
    required_as,
    unless_empty,
    update,
    validator,
)
from moorage.apiserver.registry.kind import Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.scheduling import label_selector_errors

_GROUP = "rbac.authorization.k8s.io"
_SUBJECT_KINDS = ("ServiceAccount", "User", "Group")
GROUP = "rbac.authorization.k8s.io"
INVALID_ROLE = "If the RoleRef cannot be resolved, the Authorizer must return an error."
_NO_SELECTOR = "at least one clusterRoleSelector required if aggregationRule is non-nil"


def rule_errors(rule: Obj, path: str, *, is_namespaced: bool) -> list[FieldError]:
    """Return the errors of a policy rule; `is_namespaced` forbids non-resource URLs."""
    errors: list[FieldError] = []
    if not rule.get("verbs"):
        errors.append(FieldError.required(f"{path}.verbs", "verbs must contain at least one value"))
    if rule.get("nonResourceURLs"):
        if is_namespaced:
            errors.append(
                FieldError.invalid(
                    f"{path}.nonResourceURLs",
                    rule["nonResourceURLs"],
                    "namespaced rules cannot apply to non-resource URLs",
                )
            )
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            errors.append(
                FieldError.invalid(
                    f"{path}.nonResourceURLs",
                    rule["nonResourceURLs"],
                    "rules cannot apply to both regular resources and non-resource URLs",
                )
            )
        return errors
    if not rule.get("apiGroups"):
        errors.append(
            FieldError.required(
                f"{path}.apiGroups", "resource rules must supply at least one api group"
            )
        )
    if not rule.get("resources"):
        errors.append(
            FieldError.required(
                f"{path}.resources", "resource rules must supply at least one resource"
            )
        )
    return errors


def binding_rows(*role_kinds: str) -> tuple[Row, ...]:
    """Return the rules of a binding: its `roleRef`, to one of `role_kinds`, and its subjects."""
    subject_errors = partial(_subject_errors, is_namespaced="Role" in role_kinds)
    return (
        ("roleRef.apiGroup", always_text(one_of(_GROUP))),
        ("roleRef.kind", always_text(one_of(*role_kinds))),
        ("roleRef.name", required, unless_empty(follows(names.path_segment_errors))),
        ("subjects[*]", subject_errors),
    )


def _subject_errors(subject: Obj, path: str, *, is_namespaced: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    name, kind, group = (
        subject.get("name", ""),
        subject.get("kind", ""),
        subject.get("apiGroup", ""),
    )
    if not name:
        errors.append(FieldError.required(f"{path}.name"))
    if kind == "ServiceAccount":
        if name:
            errors += [
                FieldError.invalid(f"{path}.name", name, detail)
                for detail in names.dns_subdomain_errors(name)
            ]
        if group:
            errors.append(FieldError.not_supported(f"{path}.apiGroup", group, ("",)))
        if not is_namespaced and not subject.get("namespace"):
            errors.append(FieldError.required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != _GROUP:
            errors.append(FieldError.not_supported(f"{path}.apiGroup", group, (_GROUP,)))
    else:
        errors.append(FieldError.not_supported(f"{path}.kind", kind, _SUBJECT_KINDS))
    return errors


def changed_role_errors(new: Obj, old: Obj) -> list[FieldError]:
    reference = new.get("roleRef", {})
    if reference == old.get("roleRef"):
        return []
    return [FieldError.invalid("roleRef", reference, "cannot change roleRef")]


def default_binding(binding: Obj) -> None:
    """Set the API defaults of a binding."""
    reference = binding.get("roleRef")
    if reference is not None and not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for subject in binding.get("subjects", ()):
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = GROUP


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


validate_role = validator(("rules[*]", partial(rule_errors, is_namespaced=True)))

ROLE = Kind(
    name="Role",
    plural="roles",
    served=(Served("rbac.authorization.k8s.io", "v1", "io.k8s.api.rbac.v1.Role"),),
    strategy=Strategy(
        validate=validate_role,
        validate_update=update(validate_role),
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=CREATED_AT,
)

validate_cluster_role = validator(
    ("rules[*]", partial(rule_errors, is_namespaced=False)),
    ("aggregationRule?.clusterRoleSelectors", required_as(_NO_SELECTOR)),
    ("aggregationRule.clusterRoleSelectors[*]", label_selector_errors),
)

CLUSTER_ROLE = Kind(
    name="ClusterRole",
    plural="clusterroles",
    served=(Served("rbac.authorization.k8s.io", "v1", "io.k8s.api.rbac.v1.ClusterRole"),),
    is_namespaced=False,
    strategy=Strategy(
        validate=validate_cluster_role,
        validate_update=update(validate_cluster_role),
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=CREATED_AT,
)


def default_role_binding(binding: Obj) -> None:
    """Set the API defaults of a RoleBinding."""
    default_binding(binding)
    namespace = binding["metadata"].get("namespace")
    for subject in binding.get("subjects", ()):
        if subject.get("kind") == "ServiceAccount" and namespace:
            subject.setdefault("namespace", namespace)


validate_role_binding = validator(*binding_rows("Role", "ClusterRole"))

_ROLE_BINDING_PRINTER = binding_printer(
    "roleBinding",
    "RoleRef can reference a Role in the current namespace or a ClusterRole in the global "
    f"namespace. {INVALID_ROLE}",
)

ROLE_BINDING = Kind(
    name="RoleBinding",
    plural="rolebindings",
    served=(Served("rbac.authorization.k8s.io", "v1", "io.k8s.api.rbac.v1.RoleBinding"),),
    strategy=Strategy(
        default=default_role_binding,
        validate=validate_role_binding,
        validate_update=update(validate_role_binding, after=changed_role_errors),
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=_ROLE_BINDING_PRINTER,
)

validate_cluster_role_binding = validator(*binding_rows("ClusterRole"))

_CLUSTER_ROLE_BINDING_PRINTER = binding_printer(
    "clusterRoleBinding",
    f"RoleRef can only reference a ClusterRole in the global namespace. {INVALID_ROLE}",
)

CLUSTER_ROLE_BINDING = Kind(
    name="ClusterRoleBinding",
    plural="clusterrolebindings",
    served=(Served("rbac.authorization.k8s.io", "v1", "io.k8s.api.rbac.v1.ClusterRoleBinding"),),
    is_namespaced=False,
    strategy=Strategy(
        default=default_binding,
        validate=validate_cluster_role_binding,
        validate_update=update(validate_cluster_role_binding, after=changed_role_errors),
        name_errors=names.path_segment_errors,
        may_create_on_update=True,
    ),
    printer=_CLUSTER_ROLE_BINDING_PRINTER,
)
