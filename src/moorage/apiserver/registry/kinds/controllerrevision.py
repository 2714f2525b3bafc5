"""ControllerRevisions. Source: apps validation and strategy of Kubernetes 1.36."""

from __future__ import annotations

from moorage.api.errors import FieldError
from moorage.apiserver.registry.columns.cells import NONE
from moorage.apiserver.registry.declare.columns import AGE, NAME, column, printer
from moorage.apiserver.registry.declare.rules import (
    always,
    immutable,
    not_negative,
    update,
    validator,
)
from moorage.apiserver.registry.kind import Kind, Obj, Served, Strategy

_TYPE = "io.k8s.api.apps.v1.ControllerRevision"


def _data_errors(data: object, path: str) -> tuple[FieldError, ...]:
    """Report data that is no JSON object.

    Empty data counts as absent, as it does in the canonical form; upstream accepts `{}`.
    """
    if isinstance(data, dict):
        return ()
    problem = "data is mandatory" if data is None else "data must be a valid JSON object"
    return (FieldError.required(path, problem),)


def _controller(controller_revision: Obj) -> str:
    """Return the object's controller as `statefulset.apps/web`."""
    for owner in controller_revision["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            group, has_group, _ = owner.get("apiVersion", "").rpartition("/")
            kind = owner.get("kind", "").lower()
            return f"{kind}.{group}/{owner['name']}" if has_group else f"{kind}/{owner['name']}"
    return NONE


_REVISION = ("revision", not_negative)

CONTROLLER_REVISION = Kind(
    name="ControllerRevision",
    plural="controllerrevisions",
    served=(Served(group="apps", version="v1", type=_TYPE),),
    strategy=Strategy(
        validate=validator(_REVISION, ("data", always(_data_errors))),
        validate_update=update(validator(_REVISION), after=immutable("data")),
    ),
    printer=printer(
        NAME,
        column("Controller", _controller, description="Controller of the object"),
        column("Revision", "revision", of=_TYPE, absent=0),
        AGE,
    ),
)
