"""ResourceClaims. Source: resource validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.resource.v1"

RESOURCE_CLAIM = Kind(
    name="ResourceClaim",
    plural="resourceclaims",
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.ResourceClaim"),),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        returns_deleted=True,
    ),
    subresources=status_subresource(),
)
