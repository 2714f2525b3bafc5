"""Defaults of a Deployment, in each version."""

from __future__ import annotations

from moorage.apiserver.registry.defaults.pod_template import default_pod_template
from moorage.apiserver.registry.kind import Obj

_FOR_EVER = 2147483647


def default_deployment(deployment: Obj) -> None:
    """apps/v1."""
    _default_deployment(
        deployment, surge="25%", unavailable="25%", history=10, deadline_seconds=600
    )


def default_extensions_deployment(deployment: Obj) -> None:
    """extensions/v1beta1: selector and labels from the template, one pod at a time, no deadline."""
    spec = deployment.setdefault("spec", {})
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    if labels:
        spec.setdefault("selector", {"matchLabels": dict(labels)})
        if not deployment["metadata"].get("labels"):
            deployment["metadata"]["labels"] = dict(labels)
    _default_deployment(
        deployment, surge=1, unavailable=1, history=_FOR_EVER, deadline_seconds=_FOR_EVER
    )


def _default_deployment(
    deployment: Obj,
    *,
    surge: int | str,
    unavailable: int | str,
    history: int,
    deadline_seconds: int,
) -> None:
    spec = deployment.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", unavailable)
        rolling.setdefault("maxSurge", surge)
    spec.setdefault("revisionHistoryLimit", history)
    spec.setdefault("progressDeadlineSeconds", deadline_seconds)
    default_pod_template(spec.setdefault("template", {}))
