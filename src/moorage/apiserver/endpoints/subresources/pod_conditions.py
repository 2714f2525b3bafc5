"""Conditions that subresources write into a pod's status."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj


def set_pod_condition(pod: Obj, condition: Obj, now: str) -> None:
    """Set the condition of a type; its transition time changes with its status alone."""
    conditions = pod.setdefault("status", {}).setdefault("conditions", [])
    for index, present in enumerate(conditions):
        if present["type"] == condition["type"]:
            is_same = present.get("status") == condition["status"]
            since = present.get("lastTransitionTime", now) if is_same else now
            conditions[index] = {**condition, "lastTransitionTime": since}
            return
    conditions.append({**condition, "lastTransitionTime": now})
