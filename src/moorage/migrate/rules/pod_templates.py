"""Pod templates of workload kinds: where the pod's metadata and spec stand in an object.

The built-in kinds are a table; any other object with a template at `spec.template` counts too, so
that Argo's Rollouts or Knative's Services are migrated like Deployments.
"""

from __future__ import annotations

from typing import Any

from moorage.migrate.rules.changes import Path
from moorage.runtimeclass.workloads import POD_PATHS

_TEMPLATE: Path = ("spec", "template")


def template_path(document: dict[str, Any]) -> Path | None:
    """Return the path of a document's pod template, None if it has none with a spec."""
    kind = document.get("kind")
    if kind in ("Pod", "PodTemplate") and document.get("apiVersion") != "v1":
        return None
    path = POD_PATHS.get(kind, _TEMPLATE) if isinstance(kind, str) else _TEMPLATE
    template: Any = document
    for step in path:
        if not isinstance(template, dict):
            return None
        template = template.get(step)
    if not isinstance(template, dict):
        return None
    return path if isinstance(template.get("spec"), dict) else None
