"""VolumeAttributesClasses. Source: storage validation of Kubernetes 1.37, KEP-3751."""

from __future__ import annotations

from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, NAME, age_of, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.provisioning import parameter_errors, provisioner_errors

_TYPES = "io.k8s.api.storage.v1"
_IMMUTABLE = ("driverName", "parameters")


def validate_attributes_class(attributes_class: Obj) -> list[FieldError]:
    """Return the errors of a new VolumeAttributesClass."""
    parameters = attributes_class.get("parameters", {})
    errors = [*provisioner_errors(attributes_class.get("driverName", ""), "driverName")]
    errors += parameter_errors(parameters, "parameters")
    if not parameters:
        detail = "must contain at least one key/value pair"
        errors.append(FieldError.required("parameters", detail))
    return errors


def validate_attributes_class_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update: driver and parameters stay."""
    errors = [
        FieldError.forbidden(field, f"updates to {field} are forbidden.")
        for field in _IMMUTABLE
        if new.get(field) != old.get(field)
    ]
    return errors + validate_attributes_class(new)


def _cells(attributes_class: Obj, now: float) -> list[Any]:
    return [
        name_of(attributes_class),
        attributes_class.get("driverName", ""),
        age_of(attributes_class, now),
    ]


_DRIVER = Column("DriverName", documented_by=f"{_TYPES}.VolumeAttributesClass.driverName")

VOLUME_ATTRIBUTES_CLASS = Kind(
    name="VolumeAttributesClass",
    plural="volumeattributesclasses",
    served=(Served(group="storage.k8s.io", version="v1", type=f"{_TYPES}.VolumeAttributesClass"),),
    is_namespaced=False,
    short_names=("vac",),
    strategy=Strategy(
        validate=validate_attributes_class,
        validate_update=validate_attributes_class_update,
        returns_deleted=True,
    ),
    printer=Printer(columns=(NAME, _DRIVER, AGE), cells=_cells),
)
