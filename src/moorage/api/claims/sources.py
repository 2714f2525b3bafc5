"""Sources of persistent volumes, by their API names. Source: core/v1 `PersistentVolumeSource`."""

from __future__ import annotations

import msgspec

from moorage.api.persistent_volumes import PersistentVolumeSpec

_OTHER_FIELDS = frozenset({
    "capacity", "access_modes", "claim_ref", "persistent_volume_reclaim_policy",
    "storage_class_name", "mount_options", "volume_mode", "node_affinity",
    "volume_attributes_class_name",
})  # fmt: skip
_SOURCES = {
    field.name: field.encode_name
    for field in msgspec.structs.fields(PersistentVolumeSpec)
    if field.name not in _OTHER_FIELDS
}


def source_kind(spec: PersistentVolumeSpec) -> str:
    """Return the kind of a volume's source by its API name, "unknown" without one."""
    named = (name for field, name in _SOURCES.items() if getattr(spec, field) is not None)
    return next(named, "unknown")
