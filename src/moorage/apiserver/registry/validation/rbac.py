"""RBAC validation: policy rules and role bindings. Source: rbac validation of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api import names
from moorage.api.errors import FieldError
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


def binding_errors(binding: Obj, role_kinds: tuple[str, ...]) -> list[FieldError]:
    """Return the errors of a binding's `roleRef`, of one of `role_kinds`, and its subjects."""
    reference = binding.get("roleRef", {})
    errors: list[FieldError] = []
    if reference.get("apiGroup") != _GROUP:
        errors.append(
            FieldError.not_supported("roleRef.apiGroup", reference.get("apiGroup", ""), (_GROUP,))
        )
    if reference.get("kind") not in role_kinds:
        errors.append(
            FieldError.not_supported("roleRef.kind", reference.get("kind", ""), role_kinds)
        )
    name = reference.get("name", "")
    if not name:
        errors.append(FieldError.required("roleRef.name"))
    else:
        errors += [
            FieldError.invalid("roleRef.name", name, detail)
            for detail in names.path_segment_errors(name)
        ]
    is_namespaced = "Role" in role_kinds
    for index, subject in enumerate(binding.get("subjects", ())):
        errors += _subject_errors(subject, f"subjects[{index}]", is_namespaced=is_namespaced)
    return errors


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
