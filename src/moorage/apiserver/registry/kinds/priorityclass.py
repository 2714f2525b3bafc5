"""PriorityClasses. Source: scheduling validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.defaults import defaults
from moorage.apiserver.registry.declare.rules import immutable, in_turn, one_of, validator, whole
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy

_SYSTEM_PREFIX = "system-"
_SYSTEM_VALUES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
_HIGHEST_USER_VALUE = 1000000000
_TYPE = "io.k8s.api.scheduling.v1.PriorityClass"


def _value_errors(priority_class: Obj) -> Iterator[FieldError]:
    name, value = priority_class["metadata"].get("name", ""), priority_class.get("value", 0)
    if name.startswith(_SYSTEM_PREFIX):
        why = _system_problem(name, priority_class)
        if why:
            yield FieldError.forbidden(
                "metadata.name",
                f"priority class names with '{_SYSTEM_PREFIX}' prefix are reserved for system "
                f"use only. error: {why}",
            )
    elif value > _HIGHEST_USER_VALUE:
        yield FieldError.forbidden(
            "value", f"maximum allowed value of a user defined priority is {_HIGHEST_USER_VALUE}"
        )


def _system_problem(name: str, priority_class: Obj) -> str:
    """Why a class of a reserved name is not the system's; empty when it is."""
    if name not in _SYSTEM_VALUES:
        return f"{name} is not a known system priority class"
    if priority_class.get("value", 0) != _SYSTEM_VALUES[name]:
        return f"value of {name} PriorityClass must be {_SYSTEM_VALUES[name]}"
    if priority_class.get("globalDefault"):
        return f"globalDefault of {name} PriorityClass must be false"
    return ""


def _changed_value(new: Obj, old: Obj) -> Iterator[FieldError]:
    if new.get("value", 0) != old.get("value", 0):
        yield FieldError.forbidden("value", "may not be changed in an update.")


def _without_metadata(obj: Obj) -> object:
    return {key: value for key, value in obj.items() if key != "metadata"}


PRIORITY_CLASS = Kind(
    name="PriorityClass",
    plural="priorityclasses",
    served=(Served("scheduling.k8s.io", "v1", _TYPE),),
    is_namespaced=False,
    short_names=("pc",),
    strategy=Strategy(
        default=defaults(("preemptionPolicy", "PreemptLowerPriority")),
        validate=validator(
            ("", whole(_value_errors)),
            ("preemptionPolicy", one_of("PreemptLowerPriority", "Never")),
        ),
        # Pods copied both.
        validate_update=in_turn(_changed_value, immutable("preemptionPolicy")),
        spec_of=_without_metadata,
    ),
    printer=printer(
        NAME,
        column("Value", "value", "integer", of=_TYPE),
        column("Global-Default", "globalDefault", "boolean", of=_TYPE),
        AGE,
        column("PreemptionPolicy", "preemptionPolicy", of=_TYPE),
    ),
)
