"""HorizontalPodAutoscalers. Source: autoscaling validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

import copy
from typing import Any

from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.kinds.horizontalpodautoscaler.annotations import (
    BEHAVIOR,
    CONDITIONS,
    CURRENT_METRICS,
    METRICS,
    behavior_text,
    conditions_text,
    current_metrics_text,
    drop_round_trip,
    metrics_text,
    read_behavior,
    read_conditions,
    read_current_metrics,
    read_metrics,
)
from moorage.apiserver.registry.kinds.horizontalpodautoscaler.validation import (
    validate_autoscaler,
    validate_autoscaler_status,
    validate_autoscaler_update,
)
from moorage.apiserver.registry.preparation import dropping_status, keep_spec, keep_status

CPU_PERCENT = 80
_PERIOD_S = 15
_SPEC_FIELDS = ("scaleTargetRef", "minReplicas", "maxReplicas")
_STATUS_FIELDS = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
_TARGET_PERCENT = "targetCPUUtilizationPercentage"
_CURRENT_PERCENT = "currentCPUUtilizationPercentage"
_V2 = "io.k8s.api.autoscaling.v2"
_UNKNOWN = "<unknown>"
_UNSET = "<unset>"
_ABSENT = "<nil>"
_SHOWN_METRICS = 2
_SPEC = f"{_V2}.HorizontalPodAutoscalerSpec"
_STATUS = f"{_V2}.HorizontalPodAutoscalerStatus"
_TYPES = "io.k8s.api.autoscaling"

_SCALE_UP: Obj = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": _PERIOD_S},
        {"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S},
    ],
}

# Its window is an option of the controller, so it has no default here.
_SCALE_DOWN: Obj = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": _PERIOD_S}],
}


def default_autoscaler(autoscaler: Obj) -> None:
    """Set the API defaults, and drop the annotations that only conversions write."""
    drop_round_trip(autoscaler)
    spec = autoscaler["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_utilization(CPU_PERCENT)]
    if "behavior" in spec:
        behavior = spec["behavior"]
        for direction, rules in (("scaleUp", _SCALE_UP), ("scaleDown", _SCALE_DOWN)):
            behavior[direction] = copy.deepcopy(rules) | behavior.get(direction, {})


def cpu_utilization(percent: int) -> Obj:
    """Return the metric of a CPU utilization, in percent of the requests."""
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def from_v1(obj: Obj) -> Obj:
    """Convert from autoscaling/v1. Raises BadRequestError for an annotation that is too long."""
    annotations = obj["metadata"].get("annotations", {})
    spec, status = (
        _picked(obj["spec"], _SPEC_FIELDS),
        _picked(obj.get("status", {}), _STATUS_FIELDS),
    )
    metrics = read_metrics(annotations) or []
    percent = obj["spec"].get(_TARGET_PERCENT)
    if percent is not None:
        metrics.append(cpu_utilization(percent))
    if metrics:
        spec["metrics"] = metrics
    if behavior := read_behavior(annotations):
        spec["behavior"] = behavior
    current = read_current_metrics(annotations)
    percent = obj.get("status", {}).get(_CURRENT_PERCENT)
    if current is None and percent is not None:
        resource = {"name": "cpu", "current": {"averageUtilization": percent}}
        current = [{"type": "Resource", "resource": resource}]
    if current:
        status["currentMetrics"] = current
    if conditions := read_conditions(annotations):
        status["conditions"] = conditions
    return {**obj, "metadata": dict(obj["metadata"]), "spec": spec, "status": status}


def to_v1(obj: Obj) -> Obj:
    """Convert to autoscaling/v1."""
    wanted, observed = obj["spec"], obj.get("status", {})
    spec, status = _picked(wanted, _SPEC_FIELDS), _picked(observed, _STATUS_FIELDS)
    texts: dict[str, str] = {}
    others = []
    for metric in wanted.get("metrics", ()):
        percent = _cpu(metric).get("target", {}).get("averageUtilization")
        if percent is None:
            others.append(metric)
        else:
            spec.setdefault(_TARGET_PERCENT, percent)
    current = observed.get("currentMetrics") or []
    for metric in current:
        percent = _cpu(metric).get("current", {}).get("averageUtilization")
        if percent is not None:
            status[_CURRENT_PERCENT] = percent
    if others:
        texts[METRICS] = metrics_text(others)
    if current:
        texts[CURRENT_METRICS] = current_metrics_text(current)
    if "behavior" in wanted:
        texts[BEHAVIOR] = behavior_text(wanted["behavior"])
    if conditions := observed.get("conditions"):
        texts[CONDITIONS] = conditions_text(conditions)
    status.setdefault("currentReplicas", 0)
    status.setdefault("desiredReplicas", 0)
    metadata = obj["metadata"]
    if texts:
        metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **texts}}
    return {**obj, "metadata": metadata, "spec": spec, "status": status}


def _cpu(metric: Obj) -> Obj:
    """Return the source of a resource metric of the CPU, or an empty one."""
    source: Obj = metric.get("resource", {})
    is_cpu = metric.get("type") == "Resource" and source.get("name") == "cpu"
    return source if is_cpu else {}


def _picked(part: Obj, fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: part[field] for field in fields if field in part}


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


PRINTER = printer(
    NAME,
    column("Reference", "spec.scaleTargetRef", of=_SPEC, absent="/", show=_target_text),
    column("Targets", _targets, documented_by=f"{_SPEC}.metrics"),
    column("MinPods", "spec.minReplicas", of=_SPEC, absent=_UNSET, show=str),
    column("MaxPods", "spec.maxReplicas", of=_SPEC, absent=0),
    column("Replicas", "status.currentReplicas", of=_STATUS, absent=0),
    AGE,
)

HORIZONTAL_POD_AUTOSCALER = Kind(
    name="HorizontalPodAutoscaler",
    plural="horizontalpodautoscalers",
    served=(
        Served("autoscaling", "v2", f"{_TYPES}.v2.HorizontalPodAutoscaler"),
        Served(
            "autoscaling",
            "v1",
            f"{_TYPES}.v1.HorizontalPodAutoscaler",
            to_storage=from_v1,
            from_storage=to_v1,
        ),
    ),
    short_names=("hpa",),
    categories=("all",),
    strategy=Strategy(
        default=default_autoscaler,
        prepare_create=dropping_status("desiredReplicas"),
        prepare_update=keep_status,
        validate=validate_autoscaler,
        validate_update=validate_autoscaler_update,
        parts={"status": PartRules(keep_spec, validate_autoscaler_status)},
    ),
    printer=PRINTER,
    subresources=status_subresource(),
)
