"""Defaults of the specification that Jobs and the Job templates of CronJobs share."""

from __future__ import annotations

from moorage.apiserver.registry.defaults.pod_template import default_pod_template
from moorage.apiserver.registry.kind import Obj


def default_job_template_spec(spec: Obj) -> None:
    """Set the API defaults of a `JobSpec` inside a template: those of its pods and its rules."""
    default_pod_template(spec.setdefault("template", {}))
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        for pattern in rule.get("onPodConditions", ()):
            if not pattern.get("status"):
                pattern["status"] = "True"
