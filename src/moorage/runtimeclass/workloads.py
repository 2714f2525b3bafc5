"""Workloads: where the pod template of each kind is.

Source: apps/v1, batch/v1, core/v1; the kinds are those whose templates PodSecurity checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

TEMPLATES: dict[str, tuple[str, ...]] = {
    "replicationcontrollers": ("spec", "template"),
    "podtemplates": ("template",),
    "replicasets.apps": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}
"""Qualified resource → the path of its pod template."""

POD_PATHS: dict[str, tuple[str, ...]] = {
    "Pod": (),
    "ReplicationController": TEMPLATES["replicationcontrollers"],
    "PodTemplate": TEMPLATES["podtemplates"],
    "ReplicaSet": TEMPLATES["replicasets.apps"],
    "Deployment": TEMPLATES["deployments.apps"],
    "StatefulSet": TEMPLATES["statefulsets.apps"],
    "DaemonSet": TEMPLATES["daemonsets.apps"],
    "Job": TEMPLATES["jobs.batch"],
    "CronJob": TEMPLATES["cronjobs.batch"],
}
"""Kind → the path of the pod, or of its template, in an object."""


def template_of(resource: str, obj: Json) -> Any:
    """Return the pod template of an object, None if it has none."""
    return below(obj, TEMPLATES[resource])


def below(obj: Json, path: tuple[str, ...]) -> Any:
    """Return the object at a path, None if there is none."""
    value: Any = obj
    for field in path:
        if not isinstance(value, dict):
            return None
        value = value.get(field)
    return value if isinstance(value, dict) else None
