"""VolumeAttributesClasses. Source: storage validation of Kubernetes 1.36, KEP-3751."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.api.errors import FieldError
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import always, required_as, update, validator
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy
from moorage.apiserver.registry.validation.provisioning import parameter_errors, provisioner_errors

_TYPE = "io.k8s.api.storage.v1.VolumeAttributesClass"

validate_attributes_class = validator(
    ("driverName", always(provisioner_errors)),
    ("parameters", parameter_errors, required_as("must contain at least one key/value pair")),
)


def _changes(new: Obj, old: Obj) -> Iterator[FieldError]:
    for field in ("driverName", "parameters"):
        if new.get(field) != old.get(field):
            yield FieldError.forbidden(field, f"updates to {field} are forbidden.")


VOLUME_ATTRIBUTES_CLASS = Kind(
    name="VolumeAttributesClass",
    plural="volumeattributesclasses",
    served=(Served(group="storage.k8s.io", version="v1", type=_TYPE),),
    is_namespaced=False,
    short_names=("vac",),
    strategy=Strategy(
        validate=validate_attributes_class,
        validate_update=update(validate_attributes_class, before=_changes),
        returns_deleted=True,
    ),
    printer=printer(NAME, column("DriverName", "driverName", of=_TYPE), AGE),
)
