"""DeviceClasses. Source: resource validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api import names
from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, printer
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy, get_spec
from moorage.apiserver.registry.validation.declared import DeclaredError, in_order, list_errors
from moorage.apiserver.registry.validation.devices import (
    configuration_errors,
    default_parameters,
    selector_errors,
)

_TYPES = "io.k8s.api.resource.v1"
_CONFIGURATIONS_MAX = 32
_QUOTA_PREFIX = "requests."


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
    served=(Served(group="resource.k8s.io", version="v1", type=f"{_TYPES}.DeviceClass"),),
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
