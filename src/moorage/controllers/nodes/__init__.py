"""Node lifecycle: conditions and taints of unhealthy nodes, and eviction of their pods."""

from moorage.controllers.nodes.eviction import TaintEvictionController
from moorage.controllers.nodes.lifecycle import NodeLifecycleController

__all__ = ["NodeLifecycleController", "TaintEvictionController"]
