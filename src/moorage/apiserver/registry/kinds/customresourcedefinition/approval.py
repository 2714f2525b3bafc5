"""Approval of CustomResourceDefinitions in groups of Kubernetes, by an annotation."""

from __future__ import annotations

from urllib.parse import urlsplit

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj

APPROVAL = "api-approved.kubernetes.io"
_HELP = "see https://github.com/kubernetes/enhancements/pull/1111"


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
