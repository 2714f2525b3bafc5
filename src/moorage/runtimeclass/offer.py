"""Offer of a class: its isolation, its cost, the nodes that it can use, and what these support."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from moorage.runtimeclass.isolation import Isolation
from moorage.runtimeclass.node_sets import NodeSet


class Support(enum.Enum):
    """Which of the nodes that a class can use have a feature, as far as probes found."""

    EVERYWHERE = "all nodes"
    SOMEWHERE = "some nodes"
    NOWHERE = "no node"
    UNKNOWN = "unknown"


class Offer(msgspec.Struct, frozen=True):
    """What a class offers: its isolation, None while unknown, its cost, and the nodes it can use.

    `overhead` is in billionths by resource; `nodes` those that match the class's selector, have
    its handler and where no probe found it broken. No pod is given a class that `is_temporary`.
    """

    name: str
    handler: str
    isolation: Isolation | None
    check: str
    overhead: Mapping[str, int]
    selector: Mapping[str, str]
    nodes: NodeSet
    supported: Mapping[str, NodeSet]
    unsupported: Mapping[str, NodeSet]
    is_placed_by_handler: bool = True
    is_temporary: bool = False

    @property
    def cost(self) -> tuple[int, int, int, str]:
        """Return the sort key of classes: isolation, overhead in memory, in CPU, the name.

        Strong isolation costs more than weak one, whatever its overhead says; unknown isolation
        comes last.
        """
        level = max(Isolation) + 1 if self.isolation is None else self.isolation
        return level, self.overhead.get("memory", 0), self.overhead.get("cpu", 0), self.name

    def support(self, feature: str, among: NodeSet = -1) -> Support:
        """Return which nodes have a feature, of those that the class can use and a set has."""
        nodes = self.nodes & among
        supporting = self.supported.get(feature, 0) & nodes
        if supporting:
            return Support.EVERYWHERE if supporting == nodes else Support.SOMEWHERE
        lacking = self.unsupported.get(feature, 0) & nodes
        return Support.NOWHERE if nodes and lacking == nodes else Support.UNKNOWN
