"""Annotations in which autoscaling/v1 carries what only v2 has fields for.

    metrics, current-metrics   lists in the form of v1, flat: `targetAverageValue`
    conditions                 the list of v2
    behavior                   under Go's names: `{"ScaleUp":{"Policies":…}}`

Text that is not of that form is as if it were absent. Source: `pkg/apis/autoscaling/v1`
conversion of Kubernetes 1.36.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec

from moorage.api import quantity
from moorage.api.clock import format_time, parse_time
from moorage.api.errors import BadRequestError
from moorage.apiserver.registry.kind import Obj

T = TypeVar("T")

_PREFIX = "autoscaling.alpha.kubernetes.io"
METRICS = f"{_PREFIX}/metrics"
CURRENT_METRICS = f"{_PREFIX}/current-metrics"
CONDITIONS = f"{_PREFIX}/conditions"
BEHAVIOR = f"{_PREFIX}/behavior"

_ROUND_TRIP = (
    METRICS,
    BEHAVIOR,
    f"{_PREFIX}/scale-down-tolerance",
    f"{_PREFIX}/scale-up-tolerance",
    CURRENT_METRICS,
    CONDITIONS,
)
# No object has longer annotations, and what is read here has no other bound on its work.
_LONGEST = 256 * 1024

_Number = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


class _Requirement(msgspec.Struct, omit_defaults=True):
    key: str = ""
    operator: str = ""
    values: list[str] = []


class _Selector(msgspec.Struct, omit_defaults=True, rename="camel"):
    match_labels: dict[str, str] = {}
    match_expressions: list[_Requirement] = []


class _Reference(msgspec.Struct, rename="camel"):
    kind: str = ""
    name: str = ""
    api_version: str = ""


class _Condition(msgspec.Struct, omit_defaults=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""
    observed_generation: int = 0


class _Field(msgspec.Struct, frozen=True):
    """A field of v1 and the place of its value in v2. `zero` is written where v2 has none."""

    name: str
    place: tuple[str, ...]
    type: Any
    zero: Any = None


def _quantity(value: Any) -> str:
    return quantity.canonical(msgspec.convert(value, str | int | float))


_ZERO_AMOUNT = "0"
_REFERENCE: Obj = {"kind": "", "name": ""}


def _identifier(name: str, selector: str) -> tuple[_Field, _Field]:
    return (
        _Field(name, ("metric", "name"), str, ""),
        _Field(selector, ("metric", "selector"), _Selector),
    )


def _amount(name: str, *place: str, is_always: bool = False) -> _Field:
    return _Field(name, place, _quantity, _ZERO_AMOUNT if is_always else None)


_METRIC, _SELECTOR = _identifier("metricName", "selector")
_EXTERNAL = _identifier("metricName", "metricSelector")
_NAME = _Field("name", ("name",), str, "")
_CONTAINER = _Field("container", ("container",), str, "")
_OBJECT = _Field("target", ("describedObject",), _Reference, _REFERENCE)
_TARGET_USAGE = (
    _Field("targetAverageUtilization", ("target", "averageUtilization"), _Number),
    _amount("targetAverageValue", "target", "averageValue"),
)
_CURRENT_USAGE = (
    _Field("currentAverageUtilization", ("current", "averageUtilization"), _Number),
    _amount("currentAverageValue", "current", "averageValue", is_always=True),
)

_Table = dict[str, tuple[_Field, ...]]

_SPECS: _Table = {
    "object": (
        _OBJECT,
        _METRIC,
        _amount("targetValue", "target", "value", is_always=True),
        _SELECTOR,
        _amount("averageValue", "target", "averageValue"),
    ),
    "pods": (
        _METRIC,
        _amount("targetAverageValue", "target", "averageValue", is_always=True),
        _SELECTOR,
    ),
    "resource": (_NAME, *_TARGET_USAGE),
    "containerResource": (_NAME, *_TARGET_USAGE, _CONTAINER),
    "external": (
        *_EXTERNAL,
        _amount("targetValue", "target", "value"),
        _amount("targetAverageValue", "target", "averageValue"),
    ),
}
_STATUSES: _Table = {
    "object": (
        _OBJECT,
        _METRIC,
        _amount("currentValue", "current", "value", is_always=True),
        _SELECTOR,
        _amount("averageValue", "current", "averageValue"),
    ),
    "pods": (
        _METRIC,
        _amount("currentAverageValue", "current", "averageValue", is_always=True),
        _SELECTOR,
    ),
    "resource": (_NAME, *_CURRENT_USAGE),
    "containerResource": (_NAME, *_CURRENT_USAGE, _CONTAINER),
    "external": (
        *_EXTERNAL,
        _amount("currentValue", "current", "value", is_always=True),
        _amount("currentAverageValue", "current", "averageValue"),
    ),
}
_SCALING_RULES = {
    "stabilizationWindowSeconds": "StabilizationWindowSeconds",
    "selectPolicy": "SelectPolicy",
    "policies": "Policies",
    "tolerance": "Tolerance",
}
_DIRECTIONS = {"scaleUp": "ScaleUp", "scaleDown": "ScaleDown"}


class _Policy(msgspec.Struct, rename="camel"):
    type: str = ""
    value: _Number = 0
    period_seconds: _Number = 0


class _Rules(msgspec.Struct, omit_defaults=True, rename="camel"):
    stabilization_window_seconds: _Number | None = None
    select_policy: str | None = None
    policies: list[_Policy] | None = None
    tolerance: str | int | float | None = None


class _Behavior(msgspec.Struct, omit_defaults=True, rename="camel"):
    scale_up: _Rules | None = None
    scale_down: _Rules | None = None


def drop_round_trip(autoscaler: Obj) -> None:
    """Remove the annotations that conversions write."""
    metadata = autoscaler["metadata"]
    annotations = metadata.get("annotations", {})
    if not any(name in annotations for name in _ROUND_TRIP):
        return
    kept = {name: value for name, value in annotations.items() if name not in _ROUND_TRIP}
    if kept:
        metadata["annotations"] = kept
    else:
        del metadata["annotations"]


def metrics_text(metrics: list[Obj]) -> str:
    """Return metrics of v2 in the form of v1."""
    return _encoded([_flat(metric, _SPECS) for metric in metrics])


def current_metrics_text(statuses: list[Obj]) -> str:
    """Return statuses of metrics of v2 in the form of v1."""
    return _encoded([_flat(status, _STATUSES) for status in statuses])


def conditions_text(conditions: list[Obj]) -> str:
    """Return the conditions, each with its time even where it has none."""
    return _encoded(
        [
            {
                "type": condition.get("type", ""),
                "status": condition.get("status", ""),
                "lastTransitionTime": condition.get("lastTransitionTime"),
                **{
                    field: condition[field]
                    for field in ("reason", "message", "observedGeneration")
                    if field in condition
                },
            }
            for condition in conditions
        ]
    )


def behavior_text(behavior: Obj) -> str:
    """Return the behavior under Go's names, absent parts as null."""
    return _encoded(
        {
            go_name: _go_rules(behavior[name]) if name in behavior else None
            for name, go_name in _DIRECTIONS.items()
        }
    )


def _go_rules(rules: Obj) -> Obj:
    shown = {go_name: rules.get(name) for name, go_name in _SCALING_RULES.items()}
    if shown["Policies"] is not None:
        shown["Policies"] = [
            {
                "Type": policy.get("type", ""),
                "Value": policy.get("value", 0),
                "PeriodSeconds": policy.get("periodSeconds", 0),
            }
            for policy in shown["Policies"]
        ]
    return shown


def read_metrics(annotations: dict[str, str]) -> list[Obj] | None:
    """Return the metrics of v2 that an object of v1 carries, or None.

    Raises BadRequestError for an annotation that no object may have.
    """
    metrics = _read_metrics(annotations, METRICS, _SPECS)
    for metric in metrics or ():
        for field, source in metric.items():
            if field in _SPECS:
                _set_target_type(field, source["target"])
    return metrics


def read_current_metrics(annotations: dict[str, str]) -> list[Obj] | None:
    """Return the statuses of metrics that an object of v1 carries, or None.

    Raises BadRequestError for an annotation that no object may have.
    """
    return _read_metrics(annotations, CURRENT_METRICS, _STATUSES)


def read_conditions(annotations: dict[str, str]) -> list[Obj] | None:
    """Return the conditions that an object of v1 carries, or None.

    Raises BadRequestError for an annotation that no object may have.
    """

    def read(value: Any) -> list[Obj]:
        conditions = msgspec.convert(value, list[_Condition])
        for condition in conditions:
            if condition.last_transition_time is not None:
                moment = parse_time(condition.last_transition_time)
                condition.last_transition_time = format_time(moment)
        shown: list[Obj] = msgspec.to_builtins(conditions)
        return shown

    return _read(annotations, CONDITIONS, read)


def read_behavior(annotations: dict[str, str]) -> Obj | None:
    """Return the behavior that an object of v1 carries, or None.

    Raises BadRequestError for an annotation that no object may have.
    """

    def read(value: Any) -> Obj:
        behavior: Obj = msgspec.to_builtins(msgspec.convert(_lower_names(value), _Behavior))
        for rules in behavior.values():
            if "tolerance" in rules:
                rules["tolerance"] = quantity.canonical(rules["tolerance"])
        return behavior

    return _read(annotations, BEHAVIOR, read) or None


def _read_metrics(annotations: dict[str, str], name: str, table: _Table) -> list[Obj] | None:
    def read(value: Any) -> list[Obj]:
        return [_nested(metric, table) for metric in msgspec.convert(value, list[Obj])]

    return _read(annotations, name, read)


def _read(annotations: dict[str, str], name: str, read: Callable[[Any], T]) -> T | None:
    text = annotations.get(name)
    if text is None:
        return None
    if len(text) > _LONGEST:
        raise BadRequestError(f"the annotation {name} is longer than {_LONGEST} characters")
    try:
        return read(msgspec.json.decode(text.encode()))
    except (ValueError, RecursionError):
        return None


def _flat(metric: Obj, table: _Table) -> Obj:
    """Return a metric of v2 in the form of v1."""
    shown: Obj = {"type": metric.get("type", "")}
    for source, fields in table.items():
        if source in metric:
            values = {field.name: _at(metric[source], field) for field in fields}
            shown[source] = {name: value for name, value in values.items() if value is not None}
    return shown


def _at(source: Obj, field: _Field) -> Any:
    value: Any = source
    for step in field.place:
        value = value.get(step) if value is not None else None
    return field.zero if value is None else value


def _nested(metric: Obj, table: _Table) -> Obj:
    """Return a metric of v1 in the form of v2. Raises ValueError for one that is neither."""
    shown: Obj = {"type": msgspec.convert(metric.get("type", ""), str)}
    for source, fields in table.items():
        flat = metric.get(source)
        if flat is not None:
            shown[source] = _nested_source(msgspec.convert(flat, Obj), fields)
    return shown


def _nested_source(flat: Obj, fields: tuple[_Field, ...]) -> Obj:
    shown: Obj = {}
    for field in fields:
        value = flat.get(field.name)
        value = field.zero if value is None else _checked(value, field.type)
        parent = shown
        for step in field.place[:-1]:
            parent = parent.setdefault(step, {})
        if value is not None:
            parent[field.place[-1]] = value
    return shown


def _checked(value: Any, type_: Any) -> Any:
    if type_ is _quantity:
        return _quantity(value)
    return msgspec.to_builtins(msgspec.convert(value, type_))


def _set_target_type(source: str, target: Obj) -> None:
    """Set the type that v1 does not write, from the values that it does."""
    match source:
        case "resource" | "containerResource":
            target["type"] = "Utilization" if "averageUtilization" in target else "AverageValue"
        case "external":
            target["type"] = "Value" if "value" in target else "AverageValue"
        case "object":
            target["type"] = "AverageValue" if "averageValue" in target else "Value"
            # v1 cannot leave the value out.
            if "averageValue" in target and target["value"] == _ZERO_AMOUNT:
                del target["value"]
        case _:
            target["type"] = "AverageValue"


def _lower_names(value: Any) -> Any:
    """Return the value with the fields of Go under the API's names; Go ignores their case."""
    if isinstance(value, list):
        return [_lower_names(item) for item in value]
    if isinstance(value, dict):
        return {_FIELDS.get(name.lower(), name): _lower_names(item) for name, item in value.items()}
    return value


_FIELDS = {
    name.lower(): name for name in (*_DIRECTIONS, *_SCALING_RULES, "type", "value", "periodSeconds")
}


def _encoded(value: Any) -> str:
    """Return JSON as Go writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).translate(_HTML)
