"""Nodes that are lost or in trouble: conditions, taints, and the pods that must leave."""

from moorage.controllers.nodes.eviction import TaintEvictionController
from moorage.controllers.nodes.lifecycle import NodeLifecycleController

__all__ = ["NodeLifecycleController", "TaintEvictionController"]
