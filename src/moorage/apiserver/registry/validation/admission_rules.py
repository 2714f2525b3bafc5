"""Admission rule validation: which requests a webhook or an admission policy is for.

Source: admissionregistration validation of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.expressions import expression_errors
from moorage.apiserver.registry.validation.repeated import repeated
from moorage.apiserver.registry.validation.scheduling import label_selector_errors

FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
REINVOCATION_POLICIES = ("IfNeeded", "Never")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_MUTABLE_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")
_MAX_CONDITIONS = 64
_STATIC_SUFFIX = ".static.k8s.io"


def static_name_errors(obj: Obj) -> list[FieldError]:
    """Validate the name of a new object: one suffix is reserved for files of the API server."""
    name = obj["metadata"].get("name", "")
    if not name.endswith(_STATIC_SUFFIX):
        return []
    return [FieldError.invalid("metadata.name", name, _static_name_detail())]


def static_name_warnings(obj: Obj) -> list[str]:
    """Return the warning about a reserved name; only old objects can have one."""
    is_static = obj["metadata"].get("name", "").endswith(_STATIC_SUFFIX)
    return [f"metadata.name: {_static_name_detail()}"] if is_static else []


def _static_name_detail() -> str:
    return (
        f'names ending with "{_STATIC_SUFFIX}" are reserved for static manifest-based '
        "configurations and cannot be managed via the API"
    )


def default_rules(rules: list[Obj]) -> None:
    """Set the API defaults of rules: both scopes."""
    for rule in rules:
        rule.setdefault("scope", "*")


def default_match(match: Obj) -> None:
    """Set the API defaults of `matchConstraints` or `matchResources`."""
    match.setdefault("matchPolicy", "Equivalent")
    match.setdefault("namespaceSelector", {})
    match.setdefault("objectSelector", {})
    default_rules(match.get("resourceRules", []))
    default_rules(match.get("excludeResourceRules", []))


def choice_errors(
    holder: Obj, field: str, path: str, choices: tuple[str, ...], *, is_required: bool = True
) -> Iterator[FieldError]:
    """Yield the error of a field that has one of a few values."""
    value = holder.get(field)
    if value is None or (value == "" and field == "reinvocationPolicy" and is_required):
        if is_required:
            yield FieldError.required(f"{path}.{field}")
    elif value not in choices:
        yield FieldError.not_supported(f"{path}.{field}", value, choices)


def rule_errors(rule: Obj, path: str) -> Iterator[FieldError]:
    """Yield the errors of one rule with operations."""
    operations = rule.get("operations", [])
    if not operations:
        yield FieldError.required(f"{path}.operations")
    yield from _alone_errors(operations, f"{path}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield FieldError.not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
    groups, versions = rule.get("apiGroups", []), rule.get("apiVersions", [])
    if not groups:
        yield FieldError.required(f"{path}.apiGroups")
    yield from _alone_errors(groups, f"{path}.apiGroups", "API groups")
    if not versions:
        yield FieldError.required(f"{path}.apiVersions")
    yield from _alone_errors(versions, f"{path}.apiVersions", "API versions")
    for index, version in enumerate(versions):
        if not version:
            yield FieldError.required(f"{path}.apiVersions[{index}]")
    yield from _resource_errors(rule.get("resources", []), f"{path}.resources")
    yield from choice_errors(rule, "scope", path, _SCOPES, is_required=False)


def _alone_errors(values: list[str], path: str, what: str) -> Iterator[FieldError]:
    if len(values) > 1 and "*" in values:
        yield FieldError.invalid(path, values, f"if '*' is present, must not specify other {what}")


def _resource_errors(resources: list[str], path: str) -> Iterator[FieldError]:
    if not resources:
        yield FieldError.required(path)
    all_parts: set[str] = set()
    all_holders: set[str] = set()
    has_plain = False
    for index, name in enumerate(resources):
        at = f"{path}[{index}]"
        if not name:
            yield FieldError.required(at)
            continue
        resource, slash, part = name.partition("/")
        if not slash:
            # As upstream, the last resource without subresource counts.
            has_plain = name != "*"
            continue
        if resource in all_parts:
            yield FieldError.invalid(
                at, name, f"if '{resource}/*' is present, must not specify {name}"
            )
        if part in all_holders:
            yield FieldError.invalid(at, name, f"if '*/{part}' is present, must not specify {name}")
        if part == "*":
            all_parts.add(resource)
        if resource == "*":
            all_holders.add(part)
    if len(resources) > 1 and "*/*" in resources:
        yield FieldError.invalid(
            path, resources, "if '*/*' is present, must not specify other resources"
        )
    if "*" in resources and has_plain:
        yield FieldError.invalid(
            path,
            resources,
            "if '*' is present, must not specify other resources without subresources",
        )


def match_errors(match: Obj, path: str) -> Iterator[FieldError]:
    """Yield the errors of `matchConstraints` or `matchResources`."""
    yield from choice_errors(match, "matchPolicy", path, MATCH_POLICIES)
    for field in ("namespaceSelector", "objectSelector"):
        if field not in match:
            yield FieldError.required(f"{path}.{field}")
        else:
            yield from label_selector_errors(match[field], f"{path}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(field, ())):
            at = f"{path}.{field}[{index}]"
            yield from _resource_name_errors(rule.get("resourceNames", []), f"{at}.resourceNames")
            yield from rule_errors(rule, at)


def _resource_name_errors(resource_names: list[str], path: str) -> Iterator[FieldError]:
    repeats = repeated(resource_names)
    for index, name in enumerate(resource_names):
        for detail in names.path_segment_errors(name):
            yield FieldError.invalid(f"{path}[{index}]", name, detail)
        if index in repeats:
            yield FieldError.duplicate(f"{path}[{index}]", name)


def mutable_operation_errors(match: Obj, path: str) -> Iterator[FieldError]:
    """Yield the errors of operations whose objects cannot be mutated."""
    for rule in match.get("resourceRules", ()):
        for operation in rule.get("operations", ()):
            if operation not in _MUTABLE_OPERATIONS:
                yield FieldError.not_supported(
                    f"{path}.resourceRules.operations", operation, _MUTABLE_OPERATIONS
                )


def match_condition_errors(conditions: list[Obj], path: str) -> Iterator[FieldError]:
    """Yield the errors of match conditions: CEL expressions with unique names."""
    if len(conditions) > _MAX_CONDITIONS:
        yield FieldError.too_many(path, len(conditions), _MAX_CONDITIONS)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        at, name = f"{path}[{index}]", condition.get("name", "")
        yield from expression_errors(condition.get("expression", ""), f"{at}.expression")
        if not name:
            yield FieldError.required(f"{at}.name")
            continue
        for detail in names.qualified_name_errors(name):
            yield FieldError.invalid(f"{at}.name", name, detail)
        if name in seen:
            yield FieldError.duplicate(f"{at}.name", name)
        seen.add(name)
