"""Columns of HorizontalPodAutoscalers: each metric as `current/target`."""

from __future__ import annotations

from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import Obj

_TYPES = "io.k8s.api.autoscaling.v2"
_UNKNOWN = "<unknown>"
_UNSET = "<unset>"
_ABSENT = "<nil>"
_SHOWN_METRICS = 2
_RESOURCE_SOURCES = {"Resource": "resource", "ContainerResource": "containerResource"}
_VALUE_SOURCES = {"External": "external", "Object": "object"}


def _target_text(target: Obj) -> str:
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _targets(autoscaler: Obj) -> str:
    metrics = autoscaler.get("spec", {}).get("metrics", [])
    return targets_text(metrics, autoscaler.get("status", {}).get("currentMetrics") or [])


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


_SPEC = f"{_TYPES}.HorizontalPodAutoscalerSpec"
_STATUS = f"{_TYPES}.HorizontalPodAutoscalerStatus"

PRINTER = printer(
    NAME,
    column("Reference", "spec.scaleTargetRef", of=_SPEC, absent="/", show=_target_text),
    column("Targets", _targets, documented_by=f"{_SPEC}.metrics"),
    column("MinPods", "spec.minReplicas", of=_SPEC, absent=_UNSET, show=str),
    column("MaxPods", "spec.maxReplicas", of=_SPEC, absent=0),
    column("Replicas", "status.currentReplicas", of=_STATUS, absent=0),
    AGE,
)
