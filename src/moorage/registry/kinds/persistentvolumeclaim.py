"""PersistentVolumeClaims. Source: core validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.core.v1"

PERSISTENT_VOLUME_CLAIM = Kind(
    name="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    served=(Served(group="", version="v1", type=f"{_TYPES}.PersistentVolumeClaim"),),
    short_names=("pvc",),
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        returns_deleted=True,
    ),
    subresources=status_subresource(),
)
