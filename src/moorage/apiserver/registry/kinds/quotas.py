"""LimitRanges and ResourceQuotas. Source: core defaults and validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.api.quantity import Quantity
from moorage.api.resource_names import (
    container_resource_name_errors,
    is_standard_quota,
    may_overcommit,
    quota_amount_errors,
    resource_name_errors,
)
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    IMMUTABLE,
    always_text,
    each_field,
    unique,
    update,
    validator,
    whole,
)
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.core.v1"
_CONTAINER, _POD, _CLAIM = "Container", "Pod", "PersistentVolumeClaim"
_NOT_FOR_PODS = "may not be specified when `type` is 'Pod'"
_EXACT_BELOW = (2**63 - 1) // 1000
_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_OF_PODS = frozenset(
    ("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
)
_OF_CLAIMS = frozenset(("persistentvolumeclaims", "requests.storage"))
_WITH_VALUES = frozenset(("PriorityClass", "VolumeAttributesClass"))
_CONFLICTS = (("BestEffort", "NotBestEffort"), ("NotTerminating", "Terminating"))
_ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_NEEDS_VALUES = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
_NO_VALUES = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
_COMPARED = ("cpu", "memory", "storage", "ephemeral-storage")
_STANDARD_TYPES = (_CONTAINER, _POD, _CLAIM)
_ONE = quantity.parse(1)
_Bounds = dict[str, dict[str, Quantity]]


def default_limit_range(limit_range: Obj) -> None:
    """Set the default limits of containers from their maximum, requests from limits or minimum."""
    for item in limit_range.get("spec", {}).get("limits", ()):
        if item.get("type") != _CONTAINER:
            continue
        limits = {**item.get("max", {}), **item.get("default", {})}
        requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
        if limits:
            item["default"] = limits
        if requests:
            item["defaultRequest"] = requests


def _type_errors(type_: str, path: str) -> list[FieldError]:
    errors = [FieldError.invalid(path, type_, why) for why in names.qualified_name_errors(type_)]
    if not errors and "/" not in type_ and type_ not in _STANDARD_TYPES:
        why = "must be a standard limit type or fully qualified"
        errors.append(FieldError.invalid(path, type_, why))
    return errors


def _item_errors(item: Obj, path: str) -> Iterator[FieldError]:
    type_ = item.get("type", "")
    name_errors = (
        container_resource_name_errors if type_ in (_POD, _CONTAINER) else resource_name_errors
    )
    bounds: _Bounds = {}
    for field in _LISTS:
        given = item.get(field, {})
        if type_ == _POD and field in ("default", "defaultRequest"):
            if given:
                yield FieldError.forbidden(f"{path}.{field}", _NOT_FOR_PODS)
            continue
        for name in sorted(given):
            yield from name_errors(name, f"{path}.{field}[{name}]")
            bounds.setdefault(name, {})[field] = quantity.parse(given[name])
        if field == "min" and type_ == _CLAIM and "storage" not in _storage(item):
            yield FieldError.required(
                f"{path}.limits",
                "either minimum or maximum storage value is required, but neither was provided",
            )
    for name in sorted(bounds):
        yield from _bound_errors(name, bounds[name], path)


def _storage(item: Obj) -> set[str]:
    return {*item.get("min", ()), *item.get("max", ())}


def _bound_errors(name: str, bounds: dict[str, Quantity], path: str) -> Iterator[FieldError]:
    """Report amounts of one resource that contradict each other."""
    pairs = (
        ("min", "max", "min", "min", "min value {} is greater than max value {}"),
        ("min", "defaultRequest", "defaultRequest", "defaultRequest",
         "min value {} is greater than default request value {}"),
        ("defaultRequest", "max", "defaultRequest", "defaultRequest",
         "default request value {} is greater than max value {}"),
        ("defaultRequest", "default", "defaultRequest", "defaultRequest",
         "default request value {} is greater than default limit value {}"),
        ("min", "default", "default", "min", "min value {} is greater than default value {}"),
        ("default", "max", "default", "max", "default value {} is greater than max value {}"),
    )  # fmt: skip
    for lower, upper, field, shown, text in pairs:
        if lower in bounds and upper in bounds and bounds[upper] < bounds[lower]:
            detail = text.format(bounds[lower], bounds[upper])
            yield FieldError.invalid(f"{path}.{field}[{name}]", str(bounds[shown]), detail)
    yield from _ratio_errors(bounds, f"{path}.maxLimitRequestRatio[{name}]")
    limit, request = bounds.get("default"), bounds.get("defaultRequest")
    if limit is not None and request is not None and limit != request and not may_overcommit(name):
        yield FieldError.invalid(
            f"{path}.defaultRequest[{name}]",
            str(request),
            f"default value {limit} must equal to defaultRequest value {request} in {name}",
        )


def _ratio_errors(bounds: dict[str, Quantity], path: str) -> Iterator[FieldError]:
    ratio = bounds.get("maxLimitRequestRatio")
    if ratio is None:
        return
    if ratio < _ONE:
        yield FieldError.invalid(path, str(ratio), f"ratio {ratio} is less than 1")
    if "min" not in bounds or "max" not in bounds:
        return
    amounts = (ratio, bounds["min"], bounds["max"])
    is_exact = all(amount.value < _EXACT_BELOW for amount in amounts)
    asked, low, high = (amount.milli if is_exact else amount.value for amount in amounts)
    # Go divides by zero to infinity, which no ratio exceeds.
    highest = high / low if low else float("inf")
    if (asked / 1000 if is_exact else asked) > highest:
        detail = f"ratio {ratio} is greater than max/min = {highest:f}"
        yield FieldError.invalid(path, str(ratio), detail)


validate_limit_range = validator(
    ("spec.limits[*].type", always_text(_type_errors), unique),
    ("spec.limits[*]", _item_errors),
)

LIMIT_RANGE = Kind(
    name="LimitRange",
    plural="limitranges",
    served=(Served("", "v1", f"{_TYPES}.LimitRange"),),
    short_names=("limits",),
    strategy=Strategy(
        default=default_limit_range,
        validate=validate_limit_range,
        validate_update=update(validate_limit_range),
        may_create_on_update=True,
    ),
)

_SCOPES = {
    "Terminating": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "BestEffort": frozenset(("pods",)),
    "NotBestEffort": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "CrossNamespacePodAffinity": _OF_PODS,
    "VolumeAttributesClass": _OF_CLAIMS,
}
"""Scope → the standard resources that it applies to."""


def _changed_scopes(new: Obj, old: Obj) -> Iterator[FieldError]:
    scopes = new.get("spec", {}).get("scopes")
    if set(scopes or ()) != set(old.get("spec", {}).get("scopes", ())):
        yield FieldError.invalid("spec.scopes", scopes, IMMUTABLE)


def _amounts_errors(amounts: Obj, path: str) -> Iterator[FieldError]:
    for name in sorted(amounts):
        at = f"{path}[{name}]"
        yield from resource_name_errors(name, at)
        if "/" not in name and not is_standard_quota(name):
            yield FieldError.invalid(at, name, "must be a standard resource for quota")
        yield from quota_amount_errors(name, quantity.parse(amounts[name]), at)


def _scopes_errors(spec: Obj) -> Iterator[FieldError]:
    path, scopes = "spec.scopes", spec.get("scopes", [])
    for scope in scopes:
        if scope not in _SCOPES:
            yield FieldError.invalid(path, scopes, "unsupported scope")
        for _ in _unsupported(scope, spec):
            yield FieldError.invalid(path, scopes, "unsupported scope applied to resource")
    yield from _conflict_errors(scopes, spec, path)


def _unsupported(scope: str, spec: Obj) -> list[str]:
    """Return the standard resources of a quota that a scope does not apply to."""
    allowed = _SCOPES.get(scope)
    if allowed is None:
        return []
    hard = sorted(spec.get("hard", {}))
    return [name for name in hard if is_standard_quota(name) and name not in allowed]


def _conflict_errors(scopes: Iterable[str], spec: Obj, path: str) -> Iterator[FieldError]:
    for pair in _CONFLICTS:
        if set(pair) <= set(scopes):
            yield FieldError.invalid(path, spec.get("scopes"), "conflicting scopes")


def _selector_errors(spec: Obj) -> Iterator[FieldError]:
    if "scopeSelector" not in spec:
        return
    path = "spec.scopeSelector.matchExpressions"
    expressions = spec["scopeSelector"].get("matchExpressions", [])
    for expression in expressions:
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        values = expression.get("values", [])
        if scope not in _SCOPES:
            yield FieldError.invalid(f"{path}.scopeName", scope, "unsupported scope")
        for _ in _unsupported(scope, spec):
            yield FieldError.invalid(
                path, spec["scopeSelector"], "unsupported scope applied to resource"
            )
        if scope in _SCOPES and scope not in _WITH_VALUES and operator != "Exists":
            yield FieldError.invalid(f"{path}.operator", operator, _ONLY_EXISTS)
        if operator in ("In", "NotIn"):
            if not values:
                yield FieldError.required(f"{path}.values", _NEEDS_VALUES)
        elif operator not in ("Exists", "DoesNotExist"):
            yield FieldError.invalid(f"{path}.operator", operator, "not a valid selector operator")
        elif values:
            yield FieldError.invalid(f"{path}.values", values, _NO_VALUES)
    yield from _conflict_errors([one.get("scopeName", "") for one in expressions], spec, path)


def warn_about_quota(new: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about a new quota that has more for requests than for limits."""
    hard = {} if old is not None else new.get("spec", {}).get("hard", {})
    warnings = []
    for resource in _COMPARED:
        request = f"requests.{resource}"
        if request not in hard and resource in ("cpu", "memory"):
            request = resource
        limit = f"limits.{resource}"
        if request in hard and limit in hard:
            more, less = quantity.parse(hard[request]), quantity.parse(hard[limit])
            if less < more:
                warnings.append(
                    f"ResourceQuota {request} ({more}) should be less than {limit} ({less})"
                )
    return warnings


def _use(quota: Obj, *, is_of_limits: bool) -> str:
    status = quota.get("status", {})
    used: Obj = status.get("used", {})
    return ", ".join(
        f"{name}: {used.get(name, '0')}/{amount}"
        for name, amount in sorted(status.get("hard", {}).items())
        if name.startswith("limits.") == is_of_limits
    )


_SPEC = (("spec.hard", _amounts_errors), ("spec", whole(_scopes_errors), whole(_selector_errors)))
_STATUS = each_field("status", ("hard", "used"), _amounts_errors)

RESOURCE_QUOTA = Kind(
    name="ResourceQuota",
    plural="resourcequotas",
    served=(Served("", "v1", f"{_TYPES}.ResourceQuota"),),
    short_names=("quota",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        validate=validator(*_SPEC, *_STATUS),
        validate_update=update(validator(*_SPEC), after=_changed_scopes),
        parts={"status": PartRules(keep_spec, update(validator(*_STATUS)))},
        warn=warn_about_quota,
        returns_deleted=True,
    ),
    printer=printer(
        NAME,
        column(
            "Request",
            partial(_use, is_of_limits=False),
            description="Use of everything but limits, and how much there may be",
        ),
        column(
            "Limit",
            partial(_use, is_of_limits=True),
            description="Use of limits, and how much there may be",
        ),
        AGE,
    ),
    subresources=status_subresource(),
)
