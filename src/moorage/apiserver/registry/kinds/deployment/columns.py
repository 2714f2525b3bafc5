"""Columns of Deployments."""

from __future__ import annotations

from typing import Any

from moorage.api import labels
from moorage.apiserver.registry.columns.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    age_of,
    container_cells,
    name_of,
)
from moorage.apiserver.registry.kind import Column, Obj, Printer

_TYPES = "io.k8s.api.apps.v1"


def _deployment_cells(deployment: Obj, now: float) -> list[Any]:
    spec, status = deployment.get("spec", {}), deployment.get("status", {})
    return [
        name_of(deployment),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(deployment, now),
        *container_cells(spec.get("template", {})),
        str(labels.from_object(spec.get("selector"))),
    ]


PRINTER = Printer(
    columns=(
        NAME,
        Column("Ready", description="Number of the pod with ready state"),
        Column("Up-to-date", documented_by=f"{_TYPES}.DeploymentStatus.updatedReplicas"),
        Column("Available", documented_by=f"{_TYPES}.DeploymentStatus.availableReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column("Selector", documented_by=f"{_TYPES}.DeploymentSpec.selector", priority=1),
    ),
    cells=_deployment_cells,
)
