"""StorageClasses. Source: storage validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy

_TYPES = "io.k8s.api.storage.v1"

STORAGE_CLASS = Kind(
    name="StorageClass",
    plural="storageclasses",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.StorageClass"),),
    is_namespaced=False,
    short_names=("sc",),
    strategy=Strategy(
        returns_deleted=True,
    ),
)
