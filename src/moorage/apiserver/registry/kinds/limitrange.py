"""LimitRanges. Source: core defaults and validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.api.quantity import Quantity
from moorage.api.resource_names import (
    container_resource_name_errors,
    may_overcommit,
    resource_name_errors,
)
from moorage.apiserver.registry.declare.rules import always_text, unique, update, validator
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy

_TYPES = "io.k8s.api.core.v1"
_CONTAINER, _POD, _CLAIM = "Container", "Pod", "PersistentVolumeClaim"
_STANDARD_TYPES = (_CONTAINER, _POD, _CLAIM)
_NOT_FOR_PODS = "may not be specified when `type` is 'Pod'"
_ONE = quantity.parse(1)
_EXACT_BELOW = (2**63 - 1) // 1000
_Bounds = dict[str, dict[str, Quantity]]
_LISTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


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
    served=(Served(group="", version="v1", type=f"{_TYPES}.LimitRange"),),
    short_names=("limits",),
    strategy=Strategy(
        default=default_limit_range,
        validate=validate_limit_range,
        validate_update=update(validate_limit_range),
        may_create_on_update=True,
    ),
)
