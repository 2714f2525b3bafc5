"""Warnings about PersistentVolumeClaims. Source: `pkg/api/persistentvolumeclaim`."""

from __future__ import annotations

from moorage.api.claims.annotations import BETA_CLASS
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.warnings import claim_spec_warnings

_CLASS = (
    f"metadata.annotations[{BETA_CLASS}]: deprecated since v1.8; use "
    '"storageClassName" attribute instead'
)


def warn_claim(claim: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about a new or changed PersistentVolumeClaim."""
    del old
    has_annotation = BETA_CLASS in claim["metadata"].get("annotations", {})
    warnings = [_CLASS] if has_annotation else []
    return [*warnings, *claim_spec_warnings(claim.get("spec", {}), "spec")]
