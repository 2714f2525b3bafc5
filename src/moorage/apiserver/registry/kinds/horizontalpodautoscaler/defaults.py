"""Defaults of HorizontalPodAutoscalers. Source: API docs "Horizontal Pod Autoscaling", KEP-853."""

from __future__ import annotations

import copy

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.horizontalpodautoscaler.annotations import drop_round_trip

CPU_PERCENT = 80

_PERIOD_S = 15
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
