"""Flow control validation: the conditions of flow schemas and priority levels.

Source: flowcontrol validation of Kubernetes 1.37.
"""

from __future__ import annotations

from moorage.api.errors import FieldError
from moorage.apiserver.registry.kind import Obj


def validate_flow_status(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a status."""
    del old
    return flow_status_errors(new)


def flow_status_errors(obj: Obj) -> list[FieldError]:
    """Validate the conditions of a status: each has a type of its own."""
    errors: list[FieldError] = []
    types: set[str] = set()
    for index, condition in enumerate(obj.get("status", {}).get("conditions", ())):
        path, condition_type = f"status.conditions[{index}].type", condition.get("type", "")
        if condition_type in types:
            errors.append(FieldError.duplicate(path, condition_type))
        types.add(condition_type)
        if not condition_type:
            errors.append(FieldError.required(path))
    return errors
