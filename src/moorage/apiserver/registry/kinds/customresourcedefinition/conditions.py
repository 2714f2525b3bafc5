"""Conditions in the status of CustomResourceDefinitions, and the approval of protected groups.

Source: apiextensions controllers `status`, `apiapproval`, `finalizer` of Kubernetes 1.36.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj

APPROVAL = "api-approved.kubernetes.io"
_HELP = "see https://github.com/kubernetes/enhancements/pull/1111"
APPROVAL_CONDITION = "KubernetesAPIApprovalPolicyConformant"


def is_protected(group: str) -> bool:
    """Return whether a group is one of Kubernetes."""
    return f".{group}".endswith((".k8s.io", ".kubernetes.io"))


def approval_errors(new: Obj, old: Obj | None) -> list[FieldError]:
    """Return the error of a definition in a group of Kubernetes without approval."""
    if not is_protected(new["spec"].get("group", "")):
        return []
    approval = new["metadata"].get("annotations", {}).get(APPROVAL, "")
    state = approval_state(approval)
    if old is not None:
        before = old["metadata"].get("annotations", {}).get(APPROVAL, "")
        if approval_state(before) == state:
            return []
    path = f"metadata.annotations[{APPROVAL}]"
    required = f'protected groups must have approval annotation "{APPROVAL}"'
    if state == "missing":
        return [FieldError.required(path, f"{required}, {_HELP}")]
    if state == "invalid":
        detail = f'{required} with either a URL or a reason starting with "unapproved"'
        return [FieldError.invalid(path, approval, f"{detail}, {_HELP}")]
    return []


def approval_state(approval: str) -> str:
    """Return the state of the annotation: missing, bypassed, approved or invalid."""
    if not approval:
        return "missing"
    if approval.startswith("unapproved"):
        return "bypassed"
    try:
        url = urlsplit(approval)
    except ValueError:
        return "invalid"
    return "approved" if url.scheme and url.netloc else "invalid"


def is_established(definition: Obj) -> bool:
    """Return whether the definition's names are accepted and its resources served."""
    return any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in definition.get("status", {}).get("conditions", ())
    )


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
