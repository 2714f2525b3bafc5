"""PersistentVolumeClaims. Source: core defaults, validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage.api import names, quantity
from moorage.api.claims.annotations import BETA_CLASS
from moorage.api.errors import FieldError
from moorage.api.resource_names import is_native
from moorage.apiserver.registry.columns.cells import CORE
from moorage.apiserver.registry.columns.shared import (
    UNSET,
    access_modes_text,
    class_text,
    phase_text,
)
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.defaults import default_volume_claim
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    status_subresource,
)
from moorage.apiserver.registry.preparation import keep_spec, keep_status
from moorage.apiserver.registry.validation.go_shapes import difference, volume_claim_spec
from moorage.apiserver.registry.validation.volume_claims import claim_spec_errors
from moorage.apiserver.registry.warnings import claim_spec_warnings

_LEGACY_SOURCES = frozenset((
    ("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"),
))  # fmt: skip
"""Group and kind of what `dataSource` alone may name."""
_IMMUTABLE = "field is immutable"
_SPEC = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims"
)
_ATTRIBUTES = "volumeAttributesClassName"
_SIDES = ("requests", "limits")
_STORAGE = "storage"
_STATES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)
_CLASS = (
    f"metadata.annotations[{BETA_CLASS}]: deprecated since v1.8; use "
    '"storageClassName" attribute instead'
)
_SPEC_TYPE, _STATUS = f"{CORE}.PersistentVolumeClaimSpec", f"{CORE}.PersistentVolumeClaimStatus"
_TYPES = "io.k8s.api.core.v1"


def prepare_claim(claim: Obj) -> None:
    """Reset the status of a new claim, and complete its data sources."""
    claim["status"] = {"phase": "Pending"}
    _prepare_sources(claim.get("spec", {}), {})


def prepare_update(new: Obj, old: Obj) -> None:
    """Keep the status, and complete the data sources."""
    keep_status(new, old)
    _prepare_sources(new.get("spec", {}), old.get("spec", {}))


def _prepare_sources(spec: Obj, was: Obj) -> None:
    reference = spec.get("dataSourceRef", {})
    if reference.get("namespace") and "dataSourceRef" not in was:
        # Sources in other namespaces are an alpha feature.
        del spec["dataSourceRef"]
    if not was.keys() & {"dataSource", "dataSourceRef"} and "dataSourceRef" not in spec:
        _drop_unknown_source(spec)
    complete_sources(spec)


def _drop_unknown_source(spec: Obj) -> None:
    """Drop what `dataSource` never could name; for that there is `dataSourceRef`."""
    source = spec.get("dataSource", {})
    if (source.get("apiGroup", ""), source.get("kind", "")) not in _LEGACY_SOURCES:
        spec.pop("dataSource", None)


def complete_sources(spec: Obj) -> None:
    """Copy one of the two data sources to the other, where only one is set."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = {
            field: value for field, value in reference.items() if field != "namespace"
        }


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


def validate_claim_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of a status update of a PersistentVolumeClaim."""
    del old
    status = new.get("status", {})
    errors: list[FieldError] = []
    if not new.get("spec", {}).get("accessModes"):
        errors.append(FieldError.required("Spec.accessModes"))
    for name, text in status.get("capacity", {}).items():
        errors += _amount_errors(text, f"status.capacity[{name}]")
    path = "status.allocatedResourceStatuses"
    for name, state in status.get("allocatedResourceStatuses", {}).items():
        errors += _name_errors(name, path)
        if state not in _STATES:
            # Upstream shows the resource, not its state.
            errors.append(FieldError.not_supported(path, name, _STATES))
    path = "status.allocatedResources"
    for name, text in status.get("allocatedResources", {}).items():
        errors += [*_name_errors(name, path)] or [*_amount_errors(text, f"{path}[{name}]")]
    return errors


def _amount_errors(text: str, path: str) -> Iterator[FieldError]:
    amount = quantity.parse(text)
    if amount.value < 0:
        yield FieldError.invalid(path, amount.value, "must be a valid resource quantity")


def _name_errors(name: str, path: str) -> Iterator[FieldError]:
    details = names.qualified_name_errors(name)
    for detail in details:
        yield FieldError.invalid(path, name, detail)
    if not details and is_native(name) and name != _STORAGE:
        yield FieldError.not_supported(path, name, [_STORAGE])


def warn_claim(claim: Obj, old: Obj | None) -> list[str]:
    """Return the warnings about a new or changed PersistentVolumeClaim."""
    del old
    has_annotation = BETA_CLASS in claim["metadata"].get("annotations", {})
    warnings = [_CLASS] if has_annotation else []
    return [*warnings, *claim_spec_warnings(claim.get("spec", {}), "spec")]


def _capacity(claim: Obj) -> str:
    # What a volume has is shown of claims that name one.
    if not claim.get("spec", {}).get("volumeName"):
        return ""
    return str(claim.get("status", {}).get("capacity", {}).get("storage", "0"))


def _access_modes(claim: Obj) -> str:
    if not claim.get("spec", {}).get("volumeName"):
        return ""
    return access_modes_text(claim.get("status", {}).get("accessModes", ()))


PRINTER = printer(
    NAME,
    column("Status", phase_text, documented_by=f"{_STATUS}.phase"),
    column("Volume", "spec.volumeName", of=_SPEC_TYPE),
    column("Capacity", _capacity, documented_by=f"{_STATUS}.capacity"),
    column("Access Modes", _access_modes, documented_by=f"{_STATUS}.accessModes"),
    column("StorageClass", class_text, description="StorageClass of the claim"),
    column(
        "VolumeAttributesClass",
        "spec.volumeAttributesClassName",
        absent=UNSET,
        description="VolumeAttributesClass of the claim",
    ),
    AGE,
    column("VolumeMode", "spec.volumeMode", of=_SPEC_TYPE, absent=UNSET, priority=1),
)

PERSISTENT_VOLUME_CLAIM = Kind(
    name="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    served=(Served("", "v1", f"{_TYPES}.PersistentVolumeClaim"),),
    short_names=("pvc",),
    strategy=Strategy(
        default=default_volume_claim,
        prepare_create=prepare_claim,
        prepare_update=prepare_update,
        validate=validate_claim,
        validate_update=validate_claim_update,
        warn=warn_claim,
        parts={"status": PartRules(prepare=keep_spec, validate=validate_claim_status)},
        returns_deleted=True,
    ),
    printer=PRINTER,
    subresources=status_subresource(),
)
