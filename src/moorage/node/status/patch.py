"""Status patch: the minimal change from the API's status to the one to report.

Pure. A strategic merge patch: lists with merge keys are replaced by directive where the agent owns
them, conditions are merged by type so that other controllers' conditions are kept, and the pod's
uid prevents a write to a successor of the same name. Source: apimachinery strategic merge patch,
core/v1 PodStatus (patchStrategy tags).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from moorage.api.pods import PodCondition, PodStatus
from moorage.node.status.conditions import OWNED, is_own

_MERGED_LISTS = frozenset({"podIPs", "hostIPs"})
_NOT_OURS = frozenset(
    {
        "nominatedNodeName",
        "resourceClaimStatuses",
        "extendedResourceClaimStatus",
        "nodeAllocatableResourceClaimStatuses",
        "resize",
    }
)


def status_patch(uid: str, before: PodStatus, after: PodStatus) -> dict[str, Any] | None:
    """Return the body for `pods/NAME/status`; None when nothing has changed."""
    old, new = _plain(before), _plain(after)
    changes: dict[str, Any] = {}
    for field in sorted((old.keys() | new.keys()) - _NOT_OURS - {"conditions"}):
        if old.get(field) != new.get(field):
            changes[field] = _replaced(field, old.get(field), new.get(field))
    conditions = _condition_changes(before.conditions, after.conditions)
    if conditions:
        changes["conditions"] = conditions
    if not changes:
        return None
    return {"metadata": {"uid": uid}, "status": changes}


def _plain(status: PodStatus) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(status)
    return plain


def _replaced(field: str, old: Any, new: Any) -> Any:
    if new is None:
        return None
    if field in _MERGED_LISTS and old is not None:
        return [*new, {"$patch": "replace"}]
    if isinstance(new, Mapping) and old is not None:
        return {**new, "$patch": "replace"}
    return new


def _condition_changes(
    before: Sequence[PodCondition], after: Sequence[PodCondition]
) -> list[dict[str, Any]]:
    """Return changed conditions that the agent owns, and deletions of removed ones."""
    old = {condition.type: condition for condition in before}
    new = {condition.type: condition for condition in after if is_own(condition)}
    changed = [
        _condition(old.get(condition.type), condition)
        for condition in new.values()
        if old.get(condition.type) != condition
    ]
    gone = [
        {"$patch": "delete", "type": type_} for type_ in old if type_ in OWNED and type_ not in new
    ]
    return [*changed, *gone]


def _condition(old: PodCondition | None, new: PodCondition) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(new)
    if old is not None:
        # A merge keeps fields that the patch omits, so removed fields are set to null.
        removed = msgspec.to_builtins(old).keys() - plain.keys() - {"lastProbeTime"}
        plain |= dict.fromkeys(removed)
    return plain
