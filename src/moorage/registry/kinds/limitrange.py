"""LimitRanges. Source: core validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy

_TYPES = "io.k8s.api.core.v1"

LIMIT_RANGE = Kind(
    name="LimitRange",
    plural="limitranges",
    served=(Served(group="", version="v1", type=f"{_TYPES}.LimitRange"),),
    short_names=("limits",),
    strategy=Strategy(
        may_create_on_update=True,
    ),
)
