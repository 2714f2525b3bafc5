"""CSIStorageCapacities. Source: storage validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy

_TYPES = "io.k8s.api.storage.v1"

CSI_STORAGE_CAPACITY = Kind(
    name="CSIStorageCapacity",
    plural="csistoragecapacities",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.CSIStorageCapacity"),),
    strategy=Strategy(
        needs_revision_on_update=True,
    ),
)
