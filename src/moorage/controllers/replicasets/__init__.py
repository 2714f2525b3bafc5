"""ReplicaSets: a given number of pods of one template."""

from moorage.controllers.replicasets.controller import ReplicaSetController

__all__ = ["ReplicaSetController"]
