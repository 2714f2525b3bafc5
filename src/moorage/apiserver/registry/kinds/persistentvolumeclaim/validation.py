"""Validation of PersistentVolumeClaims: little changes once a claim is there.

Source: core validation `ValidatePersistentVolumeClaimUpdate` of Kubernetes 1.36, KEP-1790.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import quantity
from moorage.api.claims.annotations import BETA_CLASS
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.persistentvolumeclaim.preparation import complete_sources
from moorage.apiserver.registry.validation.go_shapes import difference, volume_claim_spec
from moorage.apiserver.registry.validation.volume_claims import claim_spec_errors

_IMMUTABLE = "field is immutable"
_SPEC = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)
_ATTRIBUTES = "volumeAttributesClassName"
_SIDES = ("requests", "limits")


def validate_claim(claim: Obj) -> list[FieldError]:
    """Return the errors of a new PersistentVolumeClaim."""
    return claim_spec_errors(claim.get("spec", {}), "spec")


def validate_claim_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: a volume's name, the size and the class of attributes."""
    spec, was = new.get("spec", {}), old.get("spec", {})
    errors = validate_claim(new)
    allowed = {**was}
    complete_sources(allowed)
    if not was.get("volumeName") and "volumeName" in spec:
        allowed["volumeName"] = spec["volumeName"]
    if _is_class_moved(new, old):
        allowed["storageClassName"] = spec["storageClassName"]
    else:
        errors += _annotation_errors(new, old)
        if _is_class_added(new, old):
            allowed["storageClassName"] = spec["storageClassName"]
    if old.get("status", {}).get("phase") == "Bound":
        _allow_changes_when_bound(allowed, spec)
    if _compared(allowed) != _compared(spec):
        shown = difference(volume_claim_spec(allowed), volume_claim_spec(spec))
        errors.append(FieldError.forbidden("spec", f"{_SPEC}\n{shown}"))
    errors += _size_errors(new, old)
    if spec.get("volumeMode") != was.get("volumeMode"):
        errors.append(FieldError.invalid("volumeMode", spec.get("volumeMode"), _IMMUTABLE))
    return [*errors, *_attributes_errors(spec, was, old.get("status", {}))]


def _class_in_annotation(claim: Obj) -> str | None:
    name: str | None = claim["metadata"].get("annotations", {}).get(BETA_CLASS)
    return name


def _is_class_moved(new: Obj, old: Obj) -> bool:
    """Return whether the class moves from the annotation to its field."""
    name, before = _class_in_annotation(new), _class_in_annotation(old)
    return (
        before is not None
        and "storageClassName" not in old.get("spec", {})
        and new.get("spec", {}).get("storageClassName") == before
        and name in (None, before)
    )


def _is_class_added(new: Obj, old: Obj) -> bool:
    """Return whether a claim without a class gets one."""
    name = new.get("spec", {}).get("storageClassName")
    return (
        name is not None
        and "storageClassName" not in old.get("spec", {})
        and _class_in_annotation(old) in (None, name)
    )


def _annotation_errors(new: Obj, old: Obj) -> Iterator[FieldError]:
    name = _class_in_annotation(new) or ""
    if name != (_class_in_annotation(old) or ""):
        path = f"metadata.annotations.{BETA_CLASS}"
        yield FieldError.invalid(path, name, _IMMUTABLE)


def _allow_changes_when_bound(allowed: Obj, spec: Obj) -> None:
    """Take over the size and the class of attributes."""
    size = spec.get("resources", {}).get("requests", {}).get("storage")
    if size is not None:
        resources = allowed.get("resources", {})
        requests = {**resources.get("requests", {}), "storage": size}
        allowed["resources"] = {**resources, "requests": requests}
    allowed.pop(_ATTRIBUTES, None)
    if _ATTRIBUTES in spec:
        allowed[_ATTRIBUTES] = spec[_ATTRIBUTES]


def _compared(spec: Obj) -> dict[str, Any]:
    """Return a specification whose equal amounts are equal."""
    resources = spec.get("resources", {})
    amounts = {
        side: {name: quantity.parse(text) for name, text in resources.get(side, {}).items()}
        for side in _SIDES
    }
    return {**spec, "resources": amounts}


def _size_errors(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Reject a size that is less than what the volume has.

    It may become less than it was: so users take back an expansion that fails.
    """
    size, before = (_amount(claim.get("spec", {}).get("resources", {}).get("requests", {}))
                    for claim in (new, old))  # fmt: skip
    present = _amount(old.get("status", {}).get("capacity", {}))
    if size < before and size <= present:
        path = "spec.resources.requests.storage"
        yield FieldError.forbidden(path, "field can not be less than status.capacity")


def _amount(resources: dict[str, str]) -> quantity.Quantity:
    return quantity.parse(resources.get("storage", "0"))


def _attributes_errors(spec: Obj, was: Obj, status: Obj) -> Iterator[FieldError]:
    name = spec.get(_ATTRIBUTES)
    if name == was.get(_ATTRIBUTES) or "currentVolumeAttributesClassName" not in status:
        return
    what = "nil" if name is None else "empty string"
    if not name:
        detail = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is"
        yield FieldError.forbidden(f"spec.{_ATTRIBUTES}", f"{detail} not nil")
