"""Eviction rates by zone. Pure except for its rate limiters.

Many nodes lost at once are more likely partitioned than dead: evictions then slow down, and stop
when no node is reachable. Source: API docs "Rate limits on eviction".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from moorage.controllers.nodes.conditions import TRUE, ready_status
from moorage.controllers.objects import Node
from moorage.controllers.options import ControllerOptions

_REGION = ("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")
_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_FEW = 2


class ZoneState(Enum):
    """The share of a zone's nodes that is lost."""

    NORMAL = "normal"
    PARTIAL = "partly lost"
    FULL = "lost"


@dataclass(frozen=True, slots=True)
class Outage:
    """The state of each zone and its number of nodes."""

    states: Mapping[str, ZoneState]
    sizes: Mapping[str, int]

    @property
    def is_total(self) -> bool:
        """Return whether no node is reachable; the fault may then be on our side."""
        return bool(self.states) and all(state is ZoneState.FULL for state in self.states.values())

    def evictions_per_s(self, zone: str, options: ControllerOptions) -> float:
        """Return how many nodes of the zone may get an evicting taint per second."""
        if self.is_total:
            return 0.0
        if self.states.get(zone) is not ZoneState.PARTIAL:
            return options.node_evictions_per_s
        is_large = self.sizes[zone] > options.large_zone_nodes
        return options.node_slow_evictions_per_s if is_large else 0.0


def zone_of(node: Node) -> str:
    """Return region and zone as one key; `""` for a node without either."""
    labels = node.metadata.labels
    region = next((labels[key] for key in _REGION if key in labels), "")
    zone = next((labels[key] for key in _ZONE if key in labels), "")
    return f"{region}:\x00:{zone}" if region or zone else ""


def outage_of(nodes: Iterable[Node], unhealthy_share: float) -> Outage:
    """Compute the state of each zone from its nodes' condition Ready."""
    ready: dict[str, int] = {}
    total: dict[str, int] = {}
    for node in nodes:
        zone = zone_of(node)
        total[zone] = total.get(zone, 0) + 1
        ready[zone] = ready.get(zone, 0) + (ready_status(node) == TRUE)
    states = {zone: _state(ready[zone], count, unhealthy_share) for zone, count in total.items()}
    return Outage(states, total)


def _state(ready: int, total: int, unhealthy_share: float) -> ZoneState:
    lost = total - ready
    if ready == 0 and lost > 0:
        return ZoneState.FULL
    if lost > _FEW and lost / total >= unhealthy_share:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


class Pace:
    """Rate limiter per zone: one eviction, then a pause."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def wait_s(self, zone: str, per_s: float, now: float) -> float | None:
        """Return the seconds until the zone's next eviction; None at a rate of 0.

        A result of 0 consumes the turn.
        """
        if per_s <= 0:
            return None
        wait_s = self._next.get(zone, now) - now
        if wait_s > 0:
            return wait_s
        self._next[zone] = now + 1 / per_s
        return 0.0
