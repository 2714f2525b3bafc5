"""Defaults of a StatefulSet."""

from __future__ import annotations

from moorage.apiserver.registry.defaults.pod_template import default_pod_template
from moorage.apiserver.registry.defaults.volume_claim import default_volume_claim
from moorage.apiserver.registry.kind import Obj


def default_stateful_set(stateful_set: Obj) -> None:
    """Set the API defaults of a StatefulSet."""
    spec = stateful_set.setdefault("spec", {})
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    _default_update_strategy(spec.setdefault("updateStrategy", {}))
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    for field in ("whenDeleted", "whenScaled"):
        if not retention.get(field):
            retention[field] = "Retain"
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    default_pod_template(spec.setdefault("template", {}))
    for claim in spec.get("volumeClaimTemplates", ()):
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        default_volume_claim(claim)


def _default_update_strategy(strategy: Obj) -> None:
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    # A strategy that is named without its parameters gets none.
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
        strategy["rollingUpdate"].setdefault("maxUnavailable", 1)
