"""Warnings about PersistentVolumeClaims. Source: `pkg/api/persistentvolumeclaim`."""

from __future__ import annotations

from moorage.api.storage_annotations import CLASS_ANNOTATION
from moorage.registry.kind import Obj
from moorage.registry.warnings import claim_spec_warnings

_CLASS = (
    f"metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use "
    '"storageClassName" attribute instead'
)


def warn_claim(claim: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about a new or changed PersistentVolumeClaim."""
    del old
    has_annotation = CLASS_ANNOTATION in claim["metadata"].get("annotations", {})
    warnings = [_CLASS] if has_annotation else []
    return [*warnings, *claim_spec_warnings(claim.get("spec", {}), "spec")]
