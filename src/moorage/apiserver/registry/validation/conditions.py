"""Condition validation: lists of `metav1.Condition` in a status.

Source: apimachinery `meta/v1/validation.ValidateConditions` of Kubernetes 1.37.
"""

from __future__ import annotations

import re

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj

_STATUSES = ("False", "True", "Unknown")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_MESSAGE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex "
    f"used for validation is '{_REASON.pattern}')"
)
_REASON_MAX_BYTES = 1024
_MESSAGE_MAX_BYTES = 32 * 1024


def condition_errors(conditions: list[Obj], path: str) -> list[FieldError]:
    """Validate a list of conditions, whose types must be unique."""
    errors: list[FieldError] = []
    types: set[str] = set()
    for index, condition in enumerate(conditions):
        at, condition_type = f"{path}[{index}]", condition.get("type", "")
        if condition_type in types:
            errors.append(FieldError.duplicate(at, condition_type))
        types.add(condition_type)
        errors += _one_condition_errors(condition, at)
    return errors


def _one_condition_errors(condition: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    condition_type, status = condition.get("type", ""), condition.get("status", "")
    if not condition_type:
        errors.append(FieldError.required(f"{path}.type", "is required"))
    else:
        errors += [
            FieldError.invalid(f"{path}.type", condition_type, detail)
            for detail in names.qualified_name_errors(condition_type)
        ]
    if not status:
        errors.append(FieldError.required(f"{path}.status"))
    elif status not in _STATUSES:
        errors.append(FieldError.not_supported(f"{path}.status", status, _STATUSES))
    if condition.get("observedGeneration", 0) < 0:
        errors.append(
            FieldError.invalid(
                f"{path}.observedGeneration",
                condition["observedGeneration"],
                "must be greater than or equal to zero",
            )
        )
    if not condition.get("lastTransitionTime"):
        errors.append(FieldError.required(f"{path}.lastTransitionTime"))
    return errors + _reason_errors(condition, path)


def _reason_errors(condition: Obj, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    reason = condition.get("reason", "")
    if not reason:
        errors.append(FieldError.required(f"{path}.reason"))
    elif not _REASON.fullmatch(reason):
        errors.append(FieldError.invalid(f"{path}.reason", reason, _REASON_MESSAGE))
    if len(reason.encode()) > _REASON_MAX_BYTES:
        errors.append(FieldError.too_long(f"{path}.reason", _REASON_MAX_BYTES))
    if len(condition.get("message", "").encode()) > _MESSAGE_MAX_BYTES:
        errors.append(FieldError.too_long(f"{path}.message", _MESSAGE_MAX_BYTES))
    return errors
