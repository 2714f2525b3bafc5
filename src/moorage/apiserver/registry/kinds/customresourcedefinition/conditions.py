"""Conditions in the status of CustomResourceDefinitions.

Source: apiextensions controllers `status`, `apiapproval`, `finalizer` of Kubernetes 1.36.
"""

from __future__ import annotations

from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.customresourcedefinition.approval import (
    APPROVAL,
    approval_state,
    is_protected,
)

APPROVAL_CONDITION = "KubernetesAPIApprovalPolicyConformant"

_APPROVALS = {
    "invalid": (
        "False", "InvalidAnnotation",
        f'protected groups must have approval annotation "{APPROVAL}" with either a URL or a '
        'reason starting with "unapproved", see https://github.com/kubernetes/enhancements/pull/1111',
    ),
    "missing": (
        "False", "MissingAnnotation",
        f'protected groups must have approval annotation "{APPROVAL}", see '
        "https://github.com/kubernetes/enhancements/pull/1111",
    ),
    "approved": ("True", "ApprovedAnnotation", "approved in {}"),
    "bypassed": ("False", "UnapprovedAnnotation", "not approved: \"{}\""),
}  # fmt: skip
"""State of the annotation → status, reason and message; `{}` is the annotation."""


def set_condition(
    conditions: list[Obj], type_: str, status: str, reason: str, message: str, now: str
) -> bool:
    """Set the condition of a type, and return whether that changes it.

    Its transition time changes with its status alone.
    """
    fresh = {"type": type_, "status": status, "reason": reason, "message": message}
    for condition in conditions:
        if condition["type"] == type_:
            is_changed = any(condition.get(key) != value for key, value in fresh.items())
            if condition["status"] != status:
                condition["lastTransitionTime"] = now
            condition |= fresh
            return is_changed
    conditions.append({**fresh, "lastTransitionTime": now})
    return True


def remove_condition(conditions: list[Obj], type_: str) -> None:
    """Remove the condition of a type."""
    conditions[:] = [condition for condition in conditions if condition["type"] != type_]


def approval_condition(definition: Obj) -> tuple[str, str, str] | None:
    """Return status, reason and message about the approval of a group of Kubernetes.

    None for a group of anyone else.
    """
    if not is_protected(definition["spec"]["group"]):
        return None
    annotation = definition["metadata"].get("annotations", {}).get(APPROVAL, "")
    status, reason, message = _APPROVALS[approval_state(annotation)]
    return status, reason, message.format(annotation)
