"""VolumeAttributesClasses. Source: storage validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served, Strategy

_TYPES = "io.k8s.api.storage.v1"

VOLUME_ATTRIBUTES_CLASS = Kind(
    name="VolumeAttributesClass",
    plural="volumeattributesclasses",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.VolumeAttributesClass"),),
    is_namespaced=False,
    short_names=("vac",),
    strategy=Strategy(
        returns_deleted=True,
    ),
)
