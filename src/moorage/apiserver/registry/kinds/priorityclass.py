"""PriorityClasses. Source: scheduling validation of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy

_SYSTEM_PREFIX = "system-"
_SYSTEM_VALUES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
_HIGHEST_USER_VALUE = 1000000000
_POLICIES = ("PreemptLowerPriority", "Never")
_TYPE = "io.k8s.api.scheduling.v1.PriorityClass"


def default_priority_class(priority_class: Obj) -> None:
    """Set the API defaults of a PriorityClass."""
    priority_class.setdefault("preemptionPolicy", "PreemptLowerPriority")


def validate_priority_class(priority_class: Obj) -> list[FieldError]:
    """Return the errors of a new PriorityClass."""
    name, value = priority_class["metadata"].get("name", ""), priority_class.get("value", 0)
    errors: list[FieldError] = []
    if name.startswith(_SYSTEM_PREFIX):
        why = _system_problem(name, priority_class)
        if why:
            errors.append(
                FieldError.forbidden(
                    "metadata.name",
                    f"priority class names with '{_SYSTEM_PREFIX}' prefix are reserved for system "
                    f"use only. error: {why}",
                )
            )
    elif value > _HIGHEST_USER_VALUE:
        errors.append(
            FieldError.forbidden(
                "value",
                f"maximum allowed value of a user defined priority is {_HIGHEST_USER_VALUE}",
            )
        )
    policy = priority_class.get("preemptionPolicy")
    if policy is not None and policy not in _POLICIES:
        errors.append(FieldError.not_supported("preemptionPolicy", policy, _POLICIES))
    return errors


def _system_problem(name: str, priority_class: Obj) -> str:
    """Why a class of a reserved name is not the system's; empty when it is."""
    if name not in _SYSTEM_VALUES:
        return f"{name} is not a known system priority class"
    if priority_class.get("value", 0) != _SYSTEM_VALUES[name]:
        return f"value of {name} PriorityClass must be {_SYSTEM_VALUES[name]}"
    if priority_class.get("globalDefault"):
        return f"globalDefault of {name} PriorityClass must be false"
    return ""


def validate_priority_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: value and policy are immutable, since pods copied them."""
    errors: list[FieldError] = []
    if new.get("value", 0) != old.get("value", 0):
        errors.append(FieldError.forbidden("value", "may not be changed in an update."))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        errors.append(
            FieldError.invalid(
                "preemptionPolicy", new.get("preemptionPolicy"), "field is immutable"
            )
        )
    return errors


def _priority_class_cells(priority_class: Obj, now: float) -> list[Any]:
    return [
        name_of(priority_class),
        priority_class.get("value", 0),
        priority_class.get("globalDefault", False),
        age_of(priority_class, now),
        priority_class.get("preemptionPolicy") or "",
    ]


_PRINTER = Printer(
    columns=(
        NAME,
        Column("Value", "integer", documented_by=f"{_TYPE}.value"),
        Column("Global-Default", "boolean", documented_by=f"{_TYPE}.globalDefault"),
        AGE,
        Column("PreemptionPolicy", documented_by=f"{_TYPE}.preemptionPolicy"),
    ),
    cells=_priority_class_cells,
)


def _without_metadata(obj: Obj) -> object:
    return {key: value for key, value in obj.items() if key != "metadata"}


PRIORITY_CLASS = Kind(
    name="PriorityClass",
    plural="priorityclasses",
    served=(
        Served(
            group="scheduling.k8s.io",
            version="v1",
            type="io.k8s.api.scheduling.v1.PriorityClass",
        ),
    ),
    is_namespaced=False,
    short_names=("pc",),
    strategy=Strategy(
        default=default_priority_class,
        validate=validate_priority_class,
        validate_update=validate_priority_class_update,
        spec_of=_without_metadata,
    ),
    printer=_PRINTER,
)
