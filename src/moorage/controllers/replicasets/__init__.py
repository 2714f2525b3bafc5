"""ReplicaSets: as many pods as asked for, of one template."""

from moorage.controllers.replicasets.controller import ReplicaSetController

__all__ = ["ReplicaSetController"]
