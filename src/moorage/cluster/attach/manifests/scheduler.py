"""Scheduler beside the cluster's own, for pods that name it; not installed by default."""

from __future__ import annotations

from moorage.cluster.attach.manifests.identity import Obj
from moorage.cluster.attach.values import Values


def objects(values: Values) -> list[Obj]:
    """Return the objects of the scheduler; none unless it is enabled."""
    del values
    return []
