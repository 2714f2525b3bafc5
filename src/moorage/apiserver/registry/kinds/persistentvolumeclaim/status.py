"""Status of PersistentVolumeClaims: sizes, and how far their expansion is.

Source: core validation `ValidatePersistentVolumeClaimStatusUpdate` of Kubernetes 1.36, KEP-1790.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names, quantity
from moorage.api.errors import FieldError
from moorage.api.resource_names import is_native
from moorage.apiserver.registry.kind import Obj

_STORAGE = "storage"
_STATES = (
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
)


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
