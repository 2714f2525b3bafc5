"""Deployments and ReplicaSets: wanted, there, ready."""

from __future__ import annotations

from typing import Any

from moorage.api import labels
from moorage.registry.columns.cells import (
    AGE,
    CONTAINERS,
    IMAGES,
    NAME,
    NONE,
    age_of,
    container_cells,
    name_of,
)
from moorage.registry.kind import Column, Obj, Printer

_APPS = "io.k8s.api.apps.v1"


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


def _replica_set_cells(replica_set: Obj, now: float) -> list[Any]:
    spec, status = replica_set.get("spec", {}), replica_set.get("status", {})
    return [
        name_of(replica_set),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age_of(replica_set, now),
        *container_cells(spec.get("template", {})),
        str(labels.from_object(spec.get("selector"))) or NONE,
    ]


DEPLOYMENTS = Printer(
    columns=(
        NAME,
        Column("Ready", description="Number of the pod with ready state"),
        Column("Up-to-date", documented_by=f"{_APPS}.DeploymentStatus.updatedReplicas"),
        Column("Available", documented_by=f"{_APPS}.DeploymentStatus.availableReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column("Selector", documented_by=f"{_APPS}.DeploymentSpec.selector", priority=1),
    ),
    cells=_deployment_cells,
)

REPLICA_SETS = Printer(
    columns=(
        NAME,
        Column("Desired", "integer", documented_by=f"{_APPS}.ReplicaSetSpec.replicas"),
        Column("Current", "integer", documented_by=f"{_APPS}.ReplicaSetStatus.replicas"),
        Column("Ready", "integer", documented_by=f"{_APPS}.ReplicaSetStatus.readyReplicas"),
        AGE,
        CONTAINERS,
        IMAGES,
        Column("Selector", documented_by=f"{_APPS}.ReplicaSetSpec.selector", priority=1),
    ),
    cells=_replica_set_cells,
)
