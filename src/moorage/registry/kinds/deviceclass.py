"""DeviceClasses. Source: resource validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy, get_spec

_TYPES = "io.k8s.api.resource.v1"

DEVICE_CLASS = Kind(
    name="DeviceClass",
    plural="deviceclasses",
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.DeviceClass"),),
    is_namespaced=False,
    strategy=Strategy(
        spec_of=get_spec,
        returns_deleted=True,
    ),
)
