"""RBAC validation: policy rules and role bindings. Source: rbac validation of Kubernetes 1.36."""

from __future__ import annotations

from functools import partial

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.rules import (
    Row,
    always_text,
    follows,
    one_of,
    required,
    unless_empty,
)
from moorage.apiserver.registry.kind import Obj

_GROUP = "rbac.authorization.k8s.io"
_SUBJECT_KINDS = ("ServiceAccount", "User", "Group")


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
