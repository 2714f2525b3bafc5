"""Conversion between HorizontalPodAutoscalers of autoscaling/v1 and v2.

v1 has one metric, the CPU utilization; the rest of v2 is in its annotations. Source:
`pkg/apis/autoscaling/v1` conversion of Kubernetes 1.36.
"""

from __future__ import annotations

from typing import Any

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.horizontalpodautoscaler.annotations import (
    BEHAVIOR,
    CONDITIONS,
    CURRENT_METRICS,
    METRICS,
    behavior_text,
    conditions_text,
    current_metrics_text,
    metrics_text,
    read_behavior,
    read_conditions,
    read_current_metrics,
    read_metrics,
)
from moorage.apiserver.registry.kinds.horizontalpodautoscaler.defaults import cpu_utilization

_SPEC = ("scaleTargetRef", "minReplicas", "maxReplicas")
_STATUS = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")
_TARGET_PERCENT = "targetCPUUtilizationPercentage"
_CURRENT_PERCENT = "currentCPUUtilizationPercentage"


def from_v1(obj: Obj) -> Obj:
    """Convert from autoscaling/v1. Raises BadRequestError for an annotation that is too long."""
    annotations = obj["metadata"].get("annotations", {})
    spec, status = _picked(obj["spec"], _SPEC), _picked(obj.get("status", {}), _STATUS)
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
    spec, status = _picked(wanted, _SPEC), _picked(observed, _STATUS)
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
