"""Validation of `JobSpec`, which Jobs and the templates of CronJobs share.

Source: batch validation of Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from moorage.api import jobs as completion_indexes
from moorage.api import names
from moorage.api.errors import FieldError
from moorage.api.jobs import IndexesError
from moorage.apiserver.registry.declare.rules import NOT_NEGATIVE
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.validation.go_shapes import Shape, go_struct
from moorage.apiserver.registry.validation.pod_spec import template_errors
from moorage.apiserver.registry.warnings import spec_warnings

_RULES_MAX = 20
_EXIT_CODES_MAX = 255
_PATTERNS_MAX = 20
_INDEXES_BYTES_MAX = 64 * 1024
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_OMITTED = "Invalid value"
_COUNTS = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
    "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_INDEXED_MAX = 100_000
"""Limit of an Indexed Job's parallelism and failed indexes, which bounds its status."""
_MANY_COMPLETIONS = 100_000
_LIMIT_OF_MANY = 10_000
"""Limit of parallelism and failed indexes of a Job with many completions."""
_MANAGED_BY_BYTES = 63
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
_MODES = ("NonIndexed", "Indexed")
_REPLACEMENT = ("Failed", "TerminatingOrFailed")
_RESTART = ("OnFailure", "Never")
_SUCCESS_POLICY: Shape = (("rules", "Rules", None),)
_SUCCESS_RULE: Shape = (
    ("succeededIndexes", "SucceededIndexes", None),
    ("succeededCount", "SucceededCount", None),
)


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


def is_indexed(spec: Obj) -> bool:
    """Return whether the completion mode is Indexed."""
    return spec.get("completionMode") == "Indexed"


def job_spec_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    """Validate a `JobSpec` except its selector."""
    yield from _count_errors(spec, path)
    if "managedBy" in spec:
        yield from _managed_by_errors(spec["managedBy"], f"{path}.managedBy")
    mode = spec.get("completionMode", "NonIndexed")
    if mode not in _MODES:
        yield FieldError.not_supported(f"{path}.completionMode", mode, _MODES)
    if mode == "Indexed":
        yield from _indexed_errors(spec, path)
    if mode == "NonIndexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if field in spec:
                yield _needs_indexed(f"{path}.{field}", spec[field])
    if "podFailurePolicy" in spec:
        yield from failure_policy_errors(spec, f"{path}.podFailurePolicy")
    if "successPolicy" in spec:
        at = f"{path}.successPolicy"
        if mode == "Indexed":
            yield from success_policy_errors(spec, at)
        else:
            yield _needs_indexed(at, _shown_success_policy(spec["successPolicy"]))
    yield from _replacement_errors(spec, f"{path}.podReplacementPolicy")
    yield from template_errors(spec.get("template", {}), f"{path}.template")
    yield from _restart_errors(spec, f"{path}.template.spec.restartPolicy")


def _count_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    for field in _COUNTS:
        if spec.get(field, 0) < 0:
            yield FieldError.invalid(f"{path}.{field}", spec[field], NOT_NEGATIVE)
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield FieldError.required(
            f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"
        )


def _managed_by_errors(name: str, path: str) -> Iterator[FieldError]:
    host, _, rest = name.partition("/")
    if not name:
        yield FieldError.required(path)
    elif not host or not rest:
        yield FieldError.invalid(
            path, name, 'must be a domain-prefixed path (such as "acme.io/foo")'
        )
    else:
        for detail in names.dns_subdomain_errors(host):
            yield FieldError.invalid(path, host, detail)
        if not re.fullmatch(_PATH, rest):
            yield FieldError.invalid(
                path, rest, f"Invalid path (regex used for validation is '{_PATH}')"
            )
    if len(name.encode()) > _MANAGED_BY_BYTES:
        yield FieldError.too_long(path, _MANAGED_BY_BYTES)


def _indexed_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    completions, failed = spec.get("completions"), spec.get("maxFailedIndexes", 0)
    if completions is None:
        yield FieldError.required(f"{path}.completions", "when completion mode is Indexed")
    parallelism = spec.get("parallelism", 0)
    at_parallelism, at_failed = f"{path}.parallelism", f"{path}.maxFailedIndexes"
    if parallelism > _INDEXED_MAX:
        yield _above(at_parallelism, parallelism, f"{_INDEXED_MAX} when completion mode is Indexed")
    if completions is not None and failed > completions:
        yield _above(at_failed, failed, "completions")
    if failed > _INDEXED_MAX:
        yield _above(at_failed, failed, str(_INDEXED_MAX))
    if (completions or 0) <= _MANY_COMPLETIONS or "backoffLimitPerIndex" not in spec:
        return
    if "maxFailedIndexes" not in spec:
        yield FieldError.required(
            at_failed, f"must be specified when completions is above {_MANY_COMPLETIONS}"
        )
    limit = (
        f"{_LIMIT_OF_MANY} when completions are above {_MANY_COMPLETIONS} and used with backoff "
        "limit per index"
    )
    for at, value in ((at_parallelism, parallelism), (at_failed, failed)):
        if value > _LIMIT_OF_MANY:
            yield _above(at, value, limit)


def _above(path: str, value: int, limit: str) -> FieldError:
    return FieldError.invalid(path, value, f"must be less than or equal to {limit}")


def _needs_indexed(path: str, value: object) -> FieldError:
    return FieldError.invalid(path, value, "requires indexed completion mode")


def _shown_success_policy(policy: Obj) -> Obj:
    """Return a success policy as messages show it."""
    shown = go_struct(policy, _SUCCESS_POLICY)
    if policy.get("rules"):
        shown["Rules"] = [go_struct(rule, _SUCCESS_RULE) for rule in policy["rules"]]
    return shown


def _replacement_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    allowed = ("Failed",) if "podFailurePolicy" in spec else _REPLACEMENT
    policy = spec.get("podReplacementPolicy")
    if policy is not None and policy not in allowed:
        yield FieldError.not_supported(path, policy, allowed)


def _restart_errors(spec: Obj, path: str) -> Iterator[FieldError]:
    policy = spec.get("template", {}).get("spec", {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        yield FieldError.required(path, 'valid values: "OnFailure", "Never"')
    elif policy not in _RESTART:
        yield FieldError.not_supported(path, policy, _RESTART)
    elif "podFailurePolicy" in spec and policy != "Never":
        yield FieldError.invalid(
            path, policy, 'only "Never" is supported when podFailurePolicy is specified'
        )


def job_spec_warnings(spec: Obj, was: Obj | None, path: str) -> list[str]:
    """Return the warnings about a new or changed `JobSpec`; `was` is the old one."""
    warnings: list[str] = []
    if (
        is_indexed(spec)
        and spec.get("completions", 0) > _MANY_COMPLETIONS
        and spec.get("parallelism", 0) > _LIMIT_OF_MANY
    ):
        warnings.append(
            f"{path}: In Indexed Jobs with a number of completions higher than 10^5 and a "
            "parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes "
            "when a big number of indexes fail"
        )
    template = spec.get("template", {})
    if was is not None and was.get("template") == template:
        return warnings
    return warnings + spec_warnings(template.get("spec", {}), f"{path}.template.spec")
