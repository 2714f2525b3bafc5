"""DeviceTaintRules. Source: resource validation and strategy of Kubernetes 1.36.

Upstream also sets a new date when an update changes the effect; a strategy has no clock, so the
time stays unless the client sends another one.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, age_column, column, printer
from moorage.apiserver.registry.declare.rules import most_items, update, validator
from moorage.apiserver.registry.kind import (
    Kind,
    Obj,
    PartRules,
    Served,
    Strategy,
    get_spec,
    status_subresource,
)
from moorage.apiserver.registry.preparation import drop_status, keep_all_but_status, keep_status
from moorage.apiserver.registry.validation.conditions import condition_errors
from moorage.apiserver.registry.validation.declared import in_order
from moorage.apiserver.registry.validation.device_names import (
    driver_errors,
    label_errors,
    pool_errors,
)
from moorage.apiserver.registry.validation.devices import taint_errors

_TYPES = "io.k8s.api.resource.v1"
_CONDITIONS_MAX = 8
_SELECTORS = (("driver", driver_errors), ("pool", pool_errors), ("device", label_errors))


def prepare_device_taint_rule(rule: Obj) -> None:
    """Reset the status of a new DeviceTaintRule; date its taint."""
    drop_status(rule)
    created = rule["metadata"].get("creationTimestamp")
    if created:
        _taint(rule).setdefault("timeAdded", created)


def _taint(rule: Obj) -> Obj:
    taint: Obj = rule.get("spec", {}).get("taint", {})
    return taint


def validate_device_taint_rule(rule: Obj) -> list[FieldError]:
    """Return the errors of a new DeviceTaintRule."""
    return in_order(_rule_errors(rule, None))


def validate_device_taint_rule_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a DeviceTaintRule."""
    return in_order(_rule_errors(new, _taint(old).get("effect", "")))


def _rule_errors(rule: Obj, old_effect: str | None) -> Iterator[FieldError]:
    selector = rule.get("spec", {}).get("deviceSelector", {})
    for field, errors in _SELECTORS:
        if field in selector:
            yield from errors(selector[field], f"spec.deviceSelector.{field}")
    yield from taint_errors(_taint(rule), "spec.taint", old_effect=old_effect)


_validate_status = validator(
    ("status.conditions", condition_errors, most_items(_CONDITIONS_MAX)),
)
_TAINT = f"{_TYPES}.DeviceTaint"

DEVICE_TAINT_RULE = Kind(
    name="DeviceTaintRule",
    plural="devicetaintrules",
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.DeviceTaintRule"),),
    is_namespaced=False,
    strategy=Strategy(
        prepare_create=prepare_device_taint_rule,
        prepare_update=keep_status,
        validate=validate_device_taint_rule,
        validate_update=validate_device_taint_rule_update,
        parts={"status": PartRules(keep_all_but_status, update(_validate_status))},
        spec_of=get_spec,
        needs_revision_on_update=True,
    ),
    printer=printer(
        NAME,
        column("Key", "spec.taint.key", of=_TAINT),
        column("Value", "spec.taint.value", of=_TAINT),
        column("Effect", "spec.taint.effect", of=_TAINT),
        age_column("TimeAdded", "spec.taint.timeAdded", of=_TAINT),
        AGE,
    ),
    subresources=status_subresource(),
)
