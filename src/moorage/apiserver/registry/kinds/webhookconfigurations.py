"""Webhook configurations. Source: admissionregistration validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.admission_rules import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    REINVOCATION_POLICIES,
    choice_errors,
    match_condition_errors,
    rule_errors,
    static_name_errors,
    static_name_warnings,
)
from moorage.apiserver.registry.validation.expressions import webhook_expressions
from moorage.apiserver.registry.validation.repeated import repeated
from moorage.apiserver.registry.validation.scheduling import label_selector_errors
from moorage.apiserver.registry.validation.webhook_client import client_errors

_REVIEW_VERSIONS = ("v1", "v1beta1")
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_SIDE_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")
_PORT = 443
_TIMEOUT_S = 10
_MAX_TIMEOUT_S = 30
_SELECTORS = ("namespaceSelector", "objectSelector")
_NEVER_INTERCEPTED = frozenset({
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
})  # fmt: skip
"""Groups and resources for which no webhook is called."""
_TYPES = "io.k8s.api.admissionregistration.v1"


class _Strictness(msgspec.Struct, frozen=True):
    """The rules that an update need not keep, because the old object does not."""

    checks_conditions: bool = True
    needs_no_side_effects: bool = True
    needs_known_version: bool = True
    needs_unique_names: bool = True
    needs_valid_selectors: bool = True


default_webhooks = defaults(
    ("webhooks[*].failurePolicy", "Fail"),
    ("webhooks[*].matchPolicy", "Equivalent"),
    *((f"webhooks[*].{selector}", {}) for selector in _SELECTORS),
    ("webhooks[*].timeoutSeconds", _TIMEOUT_S),
    ("webhooks[*].rules[*].scope", "*"),
    ("webhooks[*].clientConfig?.service?.port", _PORT),
)


def validate_webhooks(configuration: Obj) -> list[FieldError]:
    """Return the errors of a new configuration."""
    errors = [*_webhooks_errors(configuration.get("webhooks", []), _Strictness())]
    return errors + static_name_errors(configuration)


def validate_webhooks_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a configuration."""
    webhooks, before = new.get("webhooks", []), old.get("webhooks", [])
    side_effects = {webhook.get("sideEffects") for webhook in before}
    strictness = _Strictness(
        checks_conditions=_conditions(webhooks) != _conditions(before),
        needs_no_side_effects=side_effects <= set(_NO_SIDE_EFFECTS),
        needs_known_version=all(
            _has_known_version(webhook.get("admissionReviewVersions", [])) for webhook in before
        ),
        needs_unique_names=len({webhook.get("name") for webhook in before}) == len(before),
        needs_valid_selectors=not any(_selector_errors(webhook, "") for webhook in before),
    )
    return [*_webhooks_errors(webhooks, strictness)]


def _conditions(webhooks: list[Obj]) -> list[list[Obj]]:
    return [webhook.get("matchConditions", []) for webhook in webhooks]


def _has_known_version(versions: list[str]) -> bool:
    return not versions or bool(set(versions) & set(_REVIEW_VERSIONS))


def _webhooks_errors(webhooks: list[Obj], strictness: _Strictness) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, webhook in enumerate(webhooks):
        path, name = f"webhooks[{index}]", webhook.get("name", "")
        yield from _name_errors(name, f"{path}.name")
        yield from _webhook_errors(webhook, path, strictness)
        yield from _review_version_errors(
            webhook.get("admissionReviewVersions", []),
            f"{path}.admissionReviewVersions",
            needs_known=strictness.needs_known_version,
        )
        if strictness.needs_unique_names and name in seen:
            yield FieldError.duplicate(f"{path}.name", name)
        seen |= {name} if name else set()


def _name_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield FieldError.required(path)
    elif details := names.dns_subdomain_errors(name):
        yield FieldError.invalid(path, name, ",".join(details))
    elif name.count(".") < 2:
        yield FieldError.invalid(
            path, name, "should be a domain with at least three segments separated by dots"
        )


def _webhook_errors(webhook: Obj, path: str, strictness: _Strictness) -> Iterator[FieldError]:
    for index, rule in enumerate(webhook.get("rules", ())):
        yield from rule_errors(rule, f"{path}.rules[{index}]")
    yield from choice_errors(webhook, "failurePolicy", path, FAILURE_POLICIES, is_required=False)
    yield from choice_errors(webhook, "matchPolicy", path, MATCH_POLICIES, is_required=False)
    permitted = _NO_SIDE_EFFECTS if strictness.needs_no_side_effects else _SIDE_EFFECTS
    if webhook.get("sideEffects") is None:
        yield FieldError.required(
            f"{path}.sideEffects", f"must specify one of {', '.join(permitted)}"
        )
    yield from choice_errors(webhook, "sideEffects", path, permitted, is_required=False)
    timeout_s = webhook.get("timeoutSeconds")
    if timeout_s is not None and not 1 <= timeout_s <= _MAX_TIMEOUT_S:
        yield FieldError.invalid(
            f"{path}.timeoutSeconds",
            timeout_s,
            "the timeout value must be between 1 and 30 seconds",
        )
    for error in _selector_errors(webhook, path):
        if strictness.needs_valid_selectors or ".values[" not in error.field:
            yield error
    yield from choice_errors(
        webhook, "reinvocationPolicy", path, REINVOCATION_POLICIES, is_required=False
    )
    yield from client_errors(webhook.get("clientConfig", {}), f"{path}.clientConfig")
    if strictness.checks_conditions:
        yield from match_condition_errors(
            webhook.get("matchConditions", []), f"{path}.matchConditions"
        )


def _selector_errors(webhook: Obj, path: str) -> list[FieldError]:
    return [
        error
        for field in _SELECTORS
        if field in webhook
        for error in label_selector_errors(webhook[field], f"{path}.{field}")
    ]


def _review_version_errors(
    versions: list[str], path: str, *, needs_known: bool
) -> Iterator[FieldError]:
    if not versions:
        yield FieldError.required(path, f"must specify one of {', '.join(_REVIEW_VERSIONS)}")
        return
    repeats = repeated(versions)
    for index, version in enumerate(versions):
        if index in repeats:
            yield FieldError.invalid(f"{path}[{index}]", version, "duplicate version")
            continue
        for detail in names.dns_1035_label_errors(version):
            yield FieldError.invalid(f"{path}[{index}]", version, detail)
    if needs_known and not _has_known_version(versions):
        yield FieldError.invalid(
            path, versions, f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        )


def warn_about_webhooks(new: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about reserved names and rules for which no webhook is called."""
    warnings = [] if old is None else list(static_name_warnings(new))
    for index, webhook in enumerate(new.get("webhooks", ())):
        for rule_index, rule in enumerate(webhook.get("rules", ())):
            warnings += [
                f"webhooks[{index}].rules[{rule_index}]: {resource}.{group} is excluded from "
                "admission webhooks; this rule will have no effect"
                for group, resource in _without_effect(rule)
            ]
    return warnings


def _without_effect(rule: Obj) -> list[tuple[str, str]]:
    groups, resources = rule.get("apiGroups", []), rule.get("resources", [])
    if "*" in groups or "*" in resources:
        return []
    pairs = dict.fromkeys((group, resource) for group in groups for resource in resources)
    return [pair for pair in pairs if pair in _NEVER_INTERCEPTED]


_PRINTER = printer(
    NAME,
    column(
        "Webhooks",
        "webhooks",
        "integer",
        show=len,
        description="Webhooks indicates the number of webhooks registered in this configuration",
    ),
    AGE,
)


def default_mutating_webhooks(configuration: Obj) -> None:
    """Set the API defaults of a MutatingWebhookConfiguration."""
    default_webhooks(configuration)
    for webhook in configuration.get("webhooks", ()):
        webhook.setdefault("reinvocationPolicy", "Never")


def _kind(name: str, default: Callable[[Obj], None]) -> Kind:
    return Kind(
        name=name,
        plural=f"{name.lower()}s",
        served=(Served("admissionregistration.k8s.io", "v1", f"{_TYPES}.{name}"),),
        is_namespaced=False,
        categories=("api-extensions",),
        strategy=Strategy(
            default=default,
            validate=validate_webhooks,
            validate_update=validate_webhooks_update,
            warn=warn_about_webhooks,
            spec_of=lambda obj: obj.get("webhooks"),
            expressions=webhook_expressions,
            needs_revision_on_update=True,
        ),
        printer=_PRINTER,
    )


VALIDATING_WEBHOOK_CONFIGURATION = _kind("ValidatingWebhookConfiguration", default_webhooks)
MUTATING_WEBHOOK_CONFIGURATION = _kind("MutatingWebhookConfiguration", default_mutating_webhooks)
