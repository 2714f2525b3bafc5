"""Admission policy validation, the same for validating and mutating policies and bindings.

Source: admissionregistration validation of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.admission_rules import (
    FAILURE_POLICIES,
    choice_errors,
    default_match,
    match_condition_errors,
    match_errors,
    static_name_warnings,
)
from moorage.apiserver.registry.validation.expressions import expression_errors
from moorage.apiserver.registry.validation.scheduling import label_selector_errors

_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function",
    "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
_ACTIONS = ("Deny", "Allow")


def default_policy(policy: Obj) -> None:
    """Set the API defaults of a policy."""
    spec = policy.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    if "matchConstraints" in spec:
        default_match(spec["matchConstraints"])


def default_binding(binding: Obj) -> None:
    """Set the API defaults of a binding."""
    spec = binding.get("spec", {})
    if "matchResources" in spec:
        default_match(spec["matchResources"])


def warn_about_name(new: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about a policy or binding: a reserved name, which only old ones have."""
    return [] if old is None else static_name_warnings(new)


def policy_errors(spec: Obj) -> Iterator[FieldError]:
    """Yield the errors of what comes first in a policy: its kind of parameters, its requests."""
    yield from choice_errors(spec, "failurePolicy", "spec", FAILURE_POLICIES)
    if "paramKind" in spec:
        yield from _param_kind_errors(spec["paramKind"], "spec.paramKind")
    match = spec.get("matchConstraints")
    if match is None:
        yield FieldError.required("spec.matchConstraints")
        return
    yield from match_errors(match, "spec.matchConstraints")
    if not match.get("resourceRules"):
        yield FieldError.required("spec.matchConstraints.resourceRules")


def condition_and_variable_errors(spec: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Yield the errors of match conditions and variables.

    `old` is the specification before an update; conditions that stay are not judged again.
    """
    conditions, kind = spec.get("matchConditions", []), spec.get("paramKind")
    is_same = old is not None and (
        conditions == old.get("matchConditions", []) and kind == old.get("paramKind")
    )
    if not is_same:
        yield from match_condition_errors(conditions, "spec.matchConditions")
    for index, variable in enumerate(spec.get("variables", ())):
        path, name = f"spec.variables[{index}]", variable.get("name", "")
        if not name.strip():
            yield FieldError.required(f"{path}.name", "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
            yield FieldError.invalid(f"{path}.name", name, "must be a valid CEL identifier")
        yield from expression_errors(
            variable.get("expression", ""),
            f"{path}.expression",
            detail="expression is not specified",
        )


def _param_kind_errors(kind: Obj, path: str) -> Iterator[FieldError]:
    api_version, name = kind.get("apiVersion", ""), kind.get("kind", "")
    yield from _api_version_errors(api_version, f"{path}.apiVersion")
    if not name:
        yield FieldError.required(f"{path}.kind")
    elif details := names.dns_1035_label_errors(name.lower()):
        yield FieldError.invalid(
            f"{path}.kind",
            name,
            f"may have mixed case, but should otherwise match: {','.join(details)}",
        )


def _api_version_errors(api_version: str, path: str) -> Iterator[FieldError]:
    if not api_version:
        yield FieldError.required(path)
        return
    if api_version.count("/") > 1:
        yield FieldError.invalid(
            path, api_version, f"unexpected GroupVersion string: {api_version}"
        )
        return
    group, _, version = api_version.rpartition("/")
    if group and (details := names.dns_subdomain_errors(group)):
        yield FieldError.invalid(path, group, ",".join(details))
    if not version:
        yield FieldError.invalid(path, api_version, "version must be specified")
    elif details := names.dns_1035_label_errors(version):
        yield FieldError.invalid(path, version, ",".join(details))


def binding_errors(spec: Obj) -> Iterator[FieldError]:
    """Yield the errors of a binding: its policy, parameters and requests."""
    policy = spec.get("policyName", "")
    if not policy:
        yield FieldError.required("spec.policyName")
    for detail in names.dns_subdomain_errors(policy) if policy else ():
        yield FieldError.invalid("spec.policyName", policy, detail)
    if "paramRef" in spec:
        yield from _param_reference_errors(spec["paramRef"], "spec.paramRef")
    if "matchResources" in spec:
        yield from match_errors(spec["matchResources"], "spec.matchResources")


def _param_reference_errors(reference: Obj, path: str) -> Iterator[FieldError]:
    name, selector = reference.get("name", ""), reference.get("selector")
    exclusive = "name and selector are mutually exclusive"
    for detail in names.path_segment_errors(name) if name else ():
        yield FieldError.invalid(f"{path}.name", name, detail)
    if name and selector is not None:
        yield FieldError.forbidden(f"{path}.name", exclusive)
    if selector is not None:
        yield from label_selector_errors(selector, f"{path}.selector")
        if name:
            yield FieldError.forbidden(f"{path}.selector", exclusive)
    if not name and selector is None:
        yield FieldError.required(path, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction", "")
    if not action:
        yield FieldError.required(f"{path}.parameterNotFoundAction")
    elif action not in _ACTIONS:
        yield FieldError.not_supported(f"{path}.parameterNotFoundAction", action, _ACTIONS)
