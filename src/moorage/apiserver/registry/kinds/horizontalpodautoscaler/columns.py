"""Columns of HorizontalPodAutoscalers: each metric as `current/target`."""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.columns.cells import AGE, NAME, NONE, age_of, name_of
from moorage.apiserver.registry.kind import Column, Obj, Printer

_TYPES = "io.k8s.api.autoscaling.v2"
_UNKNOWN = "<unknown>"
_UNSET = "<unset>"
_ABSENT = "<nil>"
_SHOWN_METRICS = 2
_RESOURCE_SOURCES = {"Resource": "resource", "ContainerResource": "containerResource"}
_VALUE_SOURCES = {"External": "external", "Object": "object"}


def autoscaler_cells(autoscaler: Obj, now: float) -> list[Any]:
    """Return the cells of a HorizontalPodAutoscaler."""
    spec, status = autoscaler.get("spec", {}), autoscaler.get("status", {})
    target = spec.get("scaleTargetRef", {})
    return [
        name_of(autoscaler),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        targets_text(spec.get("metrics", []), status.get("currentMetrics") or []),
        str(spec.get("minReplicas", _UNSET)),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age_of(autoscaler, now),
    ]


def targets_text(metrics: list[Obj], current: list[Obj]) -> str:
    """Return the metrics as `cpu: 12%/80%, …`: the first two, and how many more there are."""
    if not metrics:
        return NONE
    shown = [
        _metric_text(metric, current[index] if index < len(current) else {})
        for index, metric in enumerate(metrics[:_SHOWN_METRICS])
    ]
    text = ", ".join(shown)
    more = len(metrics) - _SHOWN_METRICS
    return f"{text} + {more} more..." if more > 0 else text


def _metric_text(metric: Obj, status: Obj) -> str:
    type_ = metric.get("type", "")
    if type_ in _RESOURCE_SOURCES:
        part = _RESOURCE_SOURCES[type_]
        source = metric.get(part, {})
        return f"{source.get('name', '')}: {_resource_text(source, status.get(part))}"
    if type_ in _VALUE_SOURCES:
        part = _VALUE_SOURCES[type_]
        return _value_text(metric.get(part, {}), status.get(part))
    if type_ == "Pods":
        wanted = metric.get("pods", {}).get("target", {}).get("averageValue", _ABSENT)
        return f"{_average(status.get('pods'))}/{wanted}"
    return "<unknown type>"


def _resource_text(source: Obj, status: Obj | None) -> str:
    target = source.get("target", {})
    if "averageValue" in target:
        return f"{_average(status)}/{target['averageValue']}"
    percent = (status or {}).get("current", {}).get("averageUtilization")
    current = _UNKNOWN if percent is None else f"{percent}%"
    wanted = target.get("averageUtilization")
    return f"{current}/{'<auto>' if wanted is None else f'{wanted}%'}"


def _value_text(source: Obj, status: Obj | None) -> str:
    target = source.get("target", {})
    if "averageValue" in target:
        current = (status or {}).get("current", {}).get("averageValue", _UNKNOWN)
        return f"{current}/{target['averageValue']} (avg)"
    current = _UNKNOWN if status is None else status.get("current", {}).get("value", _ABSENT)
    return f"{current}/{target.get('value', _ABSENT)}"


def _average(status: Obj | None) -> str:
    if status is None:
        return _UNKNOWN
    return str(status.get("current", {}).get("averageValue", _ABSENT))


PRINTER = Printer(
    columns=(
        NAME,
        Column("Reference", documented_by=f"{_TYPES}.HorizontalPodAutoscalerSpec.scaleTargetRef"),
        Column("Targets", documented_by=f"{_TYPES}.HorizontalPodAutoscalerSpec.metrics"),
        Column("MinPods", documented_by=f"{_TYPES}.HorizontalPodAutoscalerSpec.minReplicas"),
        Column("MaxPods", documented_by=f"{_TYPES}.HorizontalPodAutoscalerSpec.maxReplicas"),
        Column("Replicas", documented_by=f"{_TYPES}.HorizontalPodAutoscalerStatus.currentReplicas"),
        AGE,
    ),
    cells=autoscaler_cells,
)
