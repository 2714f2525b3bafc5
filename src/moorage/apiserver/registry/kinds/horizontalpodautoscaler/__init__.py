"""HorizontalPodAutoscalers. Source: autoscaling validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.apiserver.registry.kind import Kind, PartRules, Served, Strategy, status_subresource
from moorage.apiserver.registry.kinds.horizontalpodautoscaler.columns import PRINTER
from moorage.apiserver.registry.kinds.horizontalpodautoscaler.conversion import from_v1, to_v1
from moorage.apiserver.registry.kinds.horizontalpodautoscaler.defaults import default_autoscaler
from moorage.apiserver.registry.kinds.horizontalpodautoscaler.validation import (
    validate_autoscaler,
    validate_autoscaler_status,
    validate_autoscaler_update,
)
from moorage.apiserver.registry.preparation import dropping_status, keep_spec, keep_status

_TYPES = "io.k8s.api.autoscaling"

HORIZONTAL_POD_AUTOSCALER = Kind(
    name="HorizontalPodAutoscaler",
    plural="horizontalpodautoscalers",
    served=(
        Served(group="autoscaling", version="v2", type=f"{_TYPES}.v2.HorizontalPodAutoscaler"),
        Served(
            group="autoscaling",
            version="v1",
            type=f"{_TYPES}.v1.HorizontalPodAutoscaler",
            to_storage=from_v1,
            from_storage=to_v1,
        ),
    ),
    short_names=("hpa",),
    categories=("all",),
    strategy=Strategy(
        default=default_autoscaler,
        prepare_create=dropping_status("desiredReplicas"),
        prepare_update=keep_status,
        validate=validate_autoscaler,
        validate_update=validate_autoscaler_update,
        parts={"status": PartRules(keep_spec, validate_autoscaler_status)},
    ),
    printer=PRINTER,
    subresources=status_subresource(),
)
