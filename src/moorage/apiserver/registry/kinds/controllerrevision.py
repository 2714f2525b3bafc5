"""ControllerRevisions. Source: apps validation and strategy of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import AGE, NAME, NONE, age_of, name_of
from moorage.apiserver.registry.kind import Column, Kind, Obj, Printer, Served, Strategy
from moorage.apiserver.registry.validation.workload import NOT_NEGATIVE

_TYPES = "io.k8s.api.apps.v1"


def validate_controller_revision(controller_revision: Obj) -> list[FieldError]:
    """Return the errors of a new ControllerRevision, whose data must be a JSON object.

    Empty data counts as absent, as it does in the canonical form; upstream accepts `{}`.
    """
    errors, data = _revision_errors(controller_revision), controller_revision.get("data")
    if data is None:
        errors.append(FieldError.required("data", "data is mandatory"))
    elif not isinstance(data, dict):
        errors.append(FieldError.required("data", "data must be a valid JSON object"))
    return errors


def validate_controller_revision_update(new: Obj, old: Obj) -> list[FieldError]:
    """Return the errors of an update of a ControllerRevision, whose data never changes."""
    errors = _revision_errors(new)
    if new.get("data") != old.get("data"):
        errors.append(FieldError.invalid("data", new.get("data"), "field is immutable"))
    return errors


def _revision_errors(controller_revision: Obj) -> list[FieldError]:
    revision = controller_revision.get("revision", 0)
    return [] if revision >= 0 else [FieldError.invalid("revision", revision, NOT_NEGATIVE)]


def _controller_revision_cells(controller_revision: Obj, now: float) -> list[Any]:
    return [
        name_of(controller_revision),
        _controller(controller_revision),
        controller_revision.get("revision", 0),
        age_of(controller_revision, now),
    ]


def _controller(controller_revision: Obj) -> str:
    """Return the object's controller as `statefulset.apps/web`."""
    for owner in controller_revision["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            group, has_group, _ = owner.get("apiVersion", "").rpartition("/")
            kind = owner.get("kind", "").lower()
            return f"{kind}.{group}/{owner['name']}" if has_group else f"{kind}/{owner['name']}"
    return NONE


_PRINTER = Printer(
    columns=(
        NAME,
        Column("Controller", description="Controller of the object"),
        Column("Revision", documented_by=f"{_TYPES}.ControllerRevision.revision"),
        AGE,
    ),
    cells=_controller_revision_cells,
)

CONTROLLER_REVISION = Kind(
    name="ControllerRevision",
    plural="controllerrevisions",
    served=(Served(group="apps", version="v1", type=f"{_TYPES}.ControllerRevision"),),
    strategy=Strategy(
        validate=validate_controller_revision,
        validate_update=validate_controller_revision_update,
    ),
    printer=_PRINTER,
)
