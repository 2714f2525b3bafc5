"""Pod failure and success policy validation of Jobs.

Source: batch validation of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import jobs as completion_indexes
from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.jobs import IndexesError
from moorage.apiserver.registry.declare.rules import NOT_NEGATIVE
from moorage.apiserver.registry.kind import Obj

_RULES_MAX = 20
_EXIT_CODES_MAX = 255
_PATTERNS_MAX = 20
_INDEXES_BYTES_MAX = 64 * 1024
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_OMITTED = "Invalid value"


def failure_policy_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    """Validate `podFailurePolicy` of a `JobSpec`."""
    rules = spec["podFailurePolicy"].get("rules", [])
    if len(rules) > _RULES_MAX:
        yield FieldError.too_many(f"{path}.rules", len(rules), _RULES_MAX)
    pod = spec.get("template", {}).get("spec", {})
    containers = {
        container.get("name", "")
        for field in ("containers", "initContainers")
        for container in pod.get(field, ())
    }
    for index, rule in enumerate(rules):
        yield from _failure_rule_errors(spec, rule, f"{path}.rules[{index}]", containers)


def _failure_rule_errors(
    spec: Obj, rule: Obj, path: str, containers: set[str]
) -> Iterator[FieldError]:
    yield from _action_errors(spec, rule.get("action", ""), f"{path}.action")
    exit_codes, patterns = rule.get("onExitCodes"), rule.get("onPodConditions")
    if exit_codes is not None:
        yield from _exit_code_errors(exit_codes, f"{path}.onExitCodes", containers)
    if patterns:
        yield from _pattern_errors(patterns, f"{path}.onPodConditions")
    if exit_codes is not None and patterns:
        yield _without_value(
            path, "specifying both OnExitCodes and OnPodConditions is not supported"
        )
    if exit_codes is None and not patterns:
        yield _without_value(path, "specifying one of OnExitCodes and OnPodConditions is required")


def _action_errors(spec: Obj, action: str, path: str) -> Iterator[FieldError]:
    if not action:
        yield FieldError.required(path, _valid_values(_ACTIONS))
    elif action not in _ACTIONS:
        yield FieldError.not_supported(path, action, _ACTIONS)
    elif action == "FailIndex" and "backoffLimitPerIndex" not in spec:
        yield FieldError.invalid(path, action, "requires the backoffLimitPerIndex to be set")


def _exit_code_errors(requirement: Obj, path: str, containers: set[str]) -> Iterator[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values", [])
    yield from _choice_errors(operator, f"{path}.operator", _OPERATORS)
    name = requirement.get("containerName")
    if name is not None and name not in containers:
        yield FieldError.invalid(
            f"{path}.containerName",
            name,
            "must be one of the container or initContainer names in the pod template",
        )
    if not values:
        yield FieldError.invalid(f"{path}.values", values or None, "at least one value is required")
    elif len(values) > _EXIT_CODES_MAX:
        yield FieldError.too_many(f"{path}.values", len(values), _EXIT_CODES_MAX)
    seen: set[int] = set()
    for index, value in enumerate(values):
        at = f"{path}.values[{index}]"
        if operator == "In" and value == 0:
            yield FieldError.invalid(at, value, "must not be 0 for the In operator")
        if value in seen:
            yield FieldError.duplicate(at, value)
        seen.add(value)
    if values != sorted(values):
        yield FieldError.invalid(f"{path}.values", values, "must be ordered")


def _pattern_errors(patterns: list[Obj], path: str) -> Iterator[FieldError]:
    if len(patterns) > _PATTERNS_MAX:
        yield FieldError.too_many(path, len(patterns), _PATTERNS_MAX)
    for index, pattern in enumerate(patterns):
        type_ = pattern.get("type", "")
        for detail in names.qualified_name_errors(type_):
            yield FieldError.invalid(f"{path}[{index}].type", type_, detail)
        yield from _choice_errors(pattern.get("status", ""), f"{path}[{index}].status", _STATUSES)


def _choice_errors(value: str, path: str, allowed: tuple[str, ...]) -> Iterator[FieldError]:
    if not value:
        yield FieldError.required(path, _valid_values(allowed))
    elif value not in allowed:
        yield FieldError.not_supported(path, value, allowed)


def _valid_values(allowed: tuple[str, ...]) -> str:
    listed = " ".join(f'"{value}"' for value in allowed)
    return f"valid values: [{listed}]"


def _without_value(path: str, detail: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"{_OMITTED}: {detail}")


def success_policy_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    """Validate `successPolicy` of the `JobSpec` of an Indexed Job."""
    rules = spec["successPolicy"].get("rules", [])
    if not rules:
        yield FieldError.required(
            f"{path}.rules",
            "at least one rules must be specified when the successPolicy is specified",
        )
    if len(rules) > _RULES_MAX:
        yield FieldError.too_many(f"{path}.rules", len(rules), _RULES_MAX)
    # Without completions, which is an error of its own, no index is valid.
    completions = spec.get("completions", 0)
    for index, rule in enumerate(rules):
        yield from _success_rule_errors(rule, f"{path}.rules[{index}]", completions)


def _success_rule_errors(rule: Obj, path: str, completions: int) -> Iterator[FieldError]:
    succeeded, text = rule.get("succeededCount"), rule.get("succeededIndexes")
    if succeeded is None and text is None:
        yield FieldError.required(
            path, "at least one of succeededCount or succeededIndexes must be specified"
        )
    total = 0
    if text is not None:
        at = f"{path}.succeededIndexes"
        if len(text) > _INDEXES_BYTES_MAX:
            yield FieldError.too_long(at, _INDEXES_BYTES_MAX)
        try:
            total = completion_indexes.count(completion_indexes.parse_intervals(text, completions))
        except IndexesError as error:
            yield FieldError.invalid(at, text, f"error parsing succeededIndexes: {error}")
    if succeeded is None:
        return
    at = f"{path}.succeededCount"
    if succeeded < 0:
        yield FieldError.invalid(at, succeeded, NOT_NEGATIVE)
    if succeeded > completions:
        yield FieldError.invalid(at, succeeded, _at_most(completions, "specified completions"))
    if text is not None and succeeded > total:
        which = "indexes in the specified succeededIndexes field"
        yield FieldError.invalid(at, succeeded, _at_most(total, which))


def _at_most(limit: int, which: str) -> str:
    return f"must be less than or equal to {limit} (the number of {which})"
