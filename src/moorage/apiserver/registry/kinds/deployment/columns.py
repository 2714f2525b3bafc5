"""Columns of Deployments."""

from __future__ import annotations

from moorage.api import labels
from moorage.apiserver.registry.columns.replicas import READY
from moorage.apiserver.registry.declare.columns import (
    AGE,
    NAME,
    column,
    containers_of,
    printer,
    selector_column,
)

_TYPES = "io.k8s.api.apps.v1"


PRINTER = printer(
    NAME,
    READY,
    column("Up-to-date", "status.updatedReplicas", of=f"{_TYPES}.DeploymentStatus", absent=0),
    column("Available", "status.availableReplicas", of=f"{_TYPES}.DeploymentStatus", absent=0),
    AGE,
    *containers_of(),
    selector_column(f"{_TYPES}.DeploymentSpec", lambda selector: str(labels.from_object(selector))),
)
