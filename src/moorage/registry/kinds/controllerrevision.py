"""ControllerRevisions. Source: apps validation of Kubernetes 1.37."""

from __future__ import annotations

from moorage.registry.kind import Kind, Served

_TYPES = "io.k8s.api.apps.v1"

CONTROLLER_REVISION = Kind(
    name="ControllerRevision",
    plural="controllerrevisions",
    served=(Served(group="apps", version="v1", type=f"{_TYPES}.ControllerRevision"),),
)
