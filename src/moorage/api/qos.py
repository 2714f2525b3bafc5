"""QoS class of a pod.

Computed from the raw JSON, because the API server stores it at creation and the node agent chooses
cgroups by it. RuntimeClass overhead has no effect. Source: core/v1 `PodQOSClass`, KEP-2837 for
pod-level resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.api import quantity
from moorage.api.remembered import remembered_by_json

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"

_COUNTED = ("cpu", "memory")


def qos_class(spec: Mapping[str, Any]) -> str:
    """Return `Guaranteed`, `Burstable` or `BestEffort` for a pod specification as JSON."""
    pod_level = spec.get("resources")
    if pod_level and (_counted(pod_level, "requests") or _counted(pod_level, "limits")):
        return _class_of([pod_level])
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    return _class_of([container.get("resources") or {} for container in containers])


@remembered_by_json(1024)
def _class_of(resources: list[Mapping[str, Any]]) -> str:
    """Return the class of containers with these resources. Hot path: pods of workloads."""
    is_any_set = False
    is_guaranteed = True
    for requirements in resources:
        requests, limits = _counted(requirements, "requests"), _counted(requirements, "limits")
        is_any_set = is_any_set or bool(requests or limits)
        if set(limits) != set(_COUNTED) or requests != limits:
            is_guaranteed = False
    if not is_any_set:
        return BEST_EFFORT
    return GUARANTEED if is_guaranteed else BURSTABLE


def _counted(resources: Mapping[str, Any], side: str) -> dict[str, quantity.Quantity]:
    amounts = {
        name: quantity.parse(text)
        for name, text in (resources.get(side) or {}).items()
        if name in _COUNTED
    }
    return {name: amount for name, amount in amounts.items() if amount}
