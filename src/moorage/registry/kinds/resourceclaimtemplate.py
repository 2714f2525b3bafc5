"""ResourceClaimTemplates. Source: resource validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy

_TYPES = "io.k8s.api.resource.v1"

RESOURCE_CLAIM_TEMPLATE = Kind(
    name="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.ResourceClaimTemplate"),),
    strategy=Strategy(
        returns_deleted=True,
    ),
)
