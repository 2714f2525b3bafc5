"""VolumeAttachments. Source: storage validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, PartRules, Served, Strategy, status_subresource
from moorage.registry.preparation import drop_status, keep_spec, keep_status

_TYPES = "io.k8s.api.storage.v1"

VOLUME_ATTACHMENT = Kind(
    name="VolumeAttachment",
    plural="volumeattachments",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.VolumeAttachment"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=drop_status,
        prepare_update=keep_status,
        parts={"status": PartRules(prepare=keep_spec)},
        returns_deleted=True,
        needs_revision_on_update=True,
    ),
    subresources=status_subresource(),
)
