"""Upkeep of flow control's objects: what has to change about each. Pure functions.

Source: kube-apiserver `registry/flowcontrol/ensurer`, apiserver `util/flowcontrol` of Kubernetes
1.36.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from moorage.api.flow_control import EXEMPT, FlowSchemaSpec, PriorityLevelSpec
from moorage.api.meta import Object
from moorage.apiserver.flow_control.defaults import AUTO_UPDATE
from moorage.apiserver.registry.kind import Kind, Obj
from moorage.apiserver.registry.kinds.prioritylevelconfiguration import PRIORITY_LEVEL_CONFIGURATION

T = TypeVar("T", bound=Object)

# Source: Go's `strconv.ParseBool`.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_DANGLING = "Dangling"


def revised(kind: Kind, present: Obj, default: Obj, *, is_mandatory: bool) -> Obj | None:
    """Return a default object as it should be; None if it is.

    Suggested objects keep a specification that a user has changed, which their annotation, or else
    their generation, says.
    """
    metadata = present["metadata"]
    annotations = metadata.get("annotations", {})
    noted = _BOOLEANS.get(annotations.get(AUTO_UPDATE, ""))
    is_restored = is_mandatory or (metadata.get("generation") == 1 if noted is None else noted)
    changed = dict(present)
    if is_restored and not _is_equal(kind, present, default):
        changed["spec"] = copy.deepcopy(default["spec"])
    if noted != is_restored:
        value = "true" if is_restored else "false"
        changed["metadata"] = {**metadata, "annotations": {**annotations, AUTO_UPDATE: value}}
    return changed if changed != present else None


def is_unwanted(present: Obj) -> bool:
    """Return whether an object that is no default says that it was one."""
    annotations = present["metadata"].get("annotations", {})
    return _BOOLEANS.get(annotations.get(AUTO_UPDATE, ""), False)


def with_dangling(present: Obj, *, is_dangling: bool, now: str) -> Obj | None:
    """Return a FlowSchema with the right condition `Dangling`; None if it has it."""
    condition = _condition(level_of(present), is_dangling=is_dangling)
    status = present.get("status", {})
    conditions = status.get("conditions", [])
    for held in conditions:
        if held.get("type") == _DANGLING and held.items() >= condition.items():
            return None
    others = [held for held in conditions if held.get("type") != _DANGLING]
    return {
        **present,
        "status": {**status, "conditions": [*others, {**condition, "lastTransitionTime": now}]},
    }


def level_of(present: Obj) -> str:
    """Return the name of the priority level that a FlowSchema references."""
    spec = _convert(present.get("spec", {}), FlowSchemaSpec)
    return "" if spec is None else spec.priority_level_configuration.name


def _condition(level: str, *, is_dangling: bool) -> Mapping[str, str]:
    named = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
    if is_dangling:
        status, reason, message = "True", "NotFound", f"{named} but there is no such object"
    else:
        status, reason, message = "False", "Found", f"{named} and it exists"
    return {"type": _DANGLING, "status": status, "reason": reason, "message": message}


def _is_equal(kind: Kind, present: Obj, default: Obj) -> bool:
    """Return whether the specifications say the same. Users choose the shares of `exempt`."""
    held, wanted = present.get("spec", {}), default["spec"]
    if kind is PRIORITY_LEVEL_CONFIGURATION and default["metadata"]["name"] == EXEMPT:
        return "exempt" in held and held.get("type") == wanted["type"] and "limited" not in held
    type_: type[Object] = FlowSchemaSpec
    if kind is PRIORITY_LEVEL_CONFIGURATION:
        type_ = PriorityLevelSpec
    return _convert(held, type_) == _convert(wanted, type_)


def _convert(spec: Obj, type_: type[T]) -> T | None:
    try:
        return msgspec.convert(spec, type_)
    except msgspec.ValidationError:
        return None
