"""PodTemplates. Source: core validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy

_TYPES = "io.k8s.api.core.v1"

POD_TEMPLATE = Kind(
    name="PodTemplate",
    plural="podtemplates",
    served=(Served(group="", version="v1", type=f"{_TYPES}.PodTemplate"),),
    strategy=Strategy(
        spec_of=lambda obj: obj.get("template"),
        returns_deleted=True,
    ),
)
