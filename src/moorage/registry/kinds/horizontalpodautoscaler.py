"""HorizontalPodAutoscalers. Source: autoscaling validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.autoscaling.v2"

HORIZONTAL_POD_AUTOSCALER = Kind(
    name="HorizontalPodAutoscaler",
    plural="horizontalpodautoscalers",
    served=(Served(group="autoscaling", version="v2", type=f"{_TYPES}.HorizontalPodAutoscaler"),),
    short_names=("hpa",),
    categories=("all",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
    ),
    subresources=status_subresource(),
)
