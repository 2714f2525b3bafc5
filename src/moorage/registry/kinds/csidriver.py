"""CSIDrivers. Source: storage validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy

_TYPES = "io.k8s.api.storage.v1"

CSI_DRIVER = Kind(
    name="CSIDriver",
    plural="csidrivers",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.CSIDriver"),),
    is_namespaced=False,
    strategy=Strategy(
        returns_deleted=True,
        needs_revision_on_update=True,
    ),
)
