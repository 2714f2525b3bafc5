"""DeviceClasses and DeviceTaintRules. Source: resource validation of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
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
from moorage.apiserver.registry.validation.declared import DeclaredError, in_order, list_errors
from moorage.apiserver.registry.validation.devices import (
    configuration_errors,
    default_parameters,
    driver_errors,
    label_errors,
    pool_errors,
    selector_errors,
    taint_errors,
)

_TYPES = "io.k8s.api.resource.v1"
_CONFIGURATIONS_MAX = 32
_QUOTA_PREFIX = "requests."
_CONDITIONS_MAX = 8
_TAINT = f"{_TYPES}.DeviceTaint"


def default_device_class(device_class: Obj) -> None:
    """Put back what decoding drops from a DeviceClass; it has no API defaults."""
    default_parameters(device_class.get("spec", {}).get("config", []))


def validate_device_class(device_class: Obj) -> list[FieldError]:
    """Return the errors of a new DeviceClass."""
    return in_order(_spec_errors(device_class.get("spec", {}), {}))


def validate_device_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a DeviceClass."""
    return in_order(_spec_errors(new.get("spec", {}), old.get("spec", {})))


def _spec_errors(spec: Obj, old: Obj) -> Iterator[FieldError]:
    yield from selector_errors(spec, "spec")
    configurations = spec.get("config", [])
    is_stored = configurations == old.get("config")

    def item_errors(configuration: Obj, path: str) -> Iterator[FieldError]:
        return configuration_errors(configuration, path, is_stored=is_stored)

    yield from list_errors(configurations, "spec.config", _CONFIGURATIONS_MAX, item_errors)
    if "extendedResourceName" in spec:
        yield from _resource_errors(spec["extendedResourceName"], "spec.extendedResourceName")


def _resource_errors(name: str, path: str) -> Iterator[FieldError]:
    """Validate the name of an extended resource."""
    if "/" not in name:
        yield DeclaredError.invalid(
            path, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
        )
    elif "kubernetes.io/" in name:
        yield DeclaredError.invalid(path, name, 'must not have "kubernetes.io/" domain')
    if name.startswith(_QUOTA_PREFIX):
        yield DeclaredError.invalid(path, name, f'must not have "{_QUOTA_PREFIX}" prefix')
    for detail in names.qualified_name_errors(f"{_QUOTA_PREFIX}{name}"):
        yield DeclaredError.invalid(path, name, detail)


DEVICE_CLASS = Kind(
    name="DeviceClass",
    plural="deviceclasses",
    served=(Served("resource.k8s.io", "v1", f"{_TYPES}.DeviceClass"),),
    is_namespaced=False,
    strategy=Strategy(
        default=default_device_class,
        validate=validate_device_class,
        validate_update=validate_device_class_update,
        spec_of=get_spec,
        returns_deleted=True,
    ),
    printer=printer(NAME, AGE),
)

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

DEVICE_TAINT_RULE = Kind(
    name="DeviceTaintRule",
    plural="devicetaintrules",
    served=(Served("resource.k8s.io", "v1", f"{_TYPES}.DeviceTaintRule"),),
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
