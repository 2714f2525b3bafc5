"""Node lifecycle controller: marks nodes without heartbeats and updates the taints of all nodes.

A heartbeat is a renewed lease or a written status; its age is measured on our own monotonic clock
from when we observed it, as the node's clock may be wrong. Each node has one deadline: when it
counts as lost without another heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec

from moorage.api.clock import Clock, format_time, parse_time
from moorage.api.errors import NotFoundError
from moorage.api.meta import ObjectReference
from moorage.controllers.informers import NODE, Informers
from moorage.controllers.loop import Loop
from moorage.controllers.nodes.conditions import READY, TRUE, ready_status, unknown_conditions
from moorage.controllers.nodes.eviction import evicting_key, has_evicting_taint, taints_after
from moorage.controllers.objects import NODES, PODS, Lease, Node, Pod
from moorage.controllers.options import ControllerOptions
from moorage.controllers.pods import is_ready
from moorage.controllers.requests import locked
from moorage.wire.client.informer import latest
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.rest import Client, PatchType

LEASE_NAMESPACE = "kube-node-lease"


@dataclass(slots=True)
class _Life:
    """A node's last observed heartbeat, on our monotonic clock, and its Ready status."""

    heartbeat: float
    ready: str | None


class NodeLifecycleController:
    """Watches nodes and their leases; updates conditions, taints and their pods' readiness."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        recorder: EventRecorder,
        options: ControllerOptions,
        clock: Clock,
    ) -> None:
        self._client = client
        self._nodes = informers.nodes
        self._pods = informers.pods
        self._leases = informers.leases
        self._recorder = recorder
        self._options = options
        self._clock = clock
        self._lives: dict[str, _Life] = {}
        self._pace = Pace()
        self._outage = Outage({}, {})
        self._is_outage_stale = True
        self._leases.add_handler(self._lease_changed)
        self._loop: Loop[str] = Loop(
            "nodes",
            self._reconcile,
            [(self._pods, None), (self._leases, None)],
            clock,
            late=[(self._nodes, self._node_changed)],
        )
        self.run = self._loop.run

    def _lease_changed(self, before: Lease | None, after: Lease | None) -> None:
        if after is None or after.metadata.namespace != LEASE_NAMESPACE:
            return
        life = self._lives.get(after.metadata.name)
        if life is not None and (before is None or before.spec.renew_time != after.spec.renew_time):
            life.heartbeat = self._clock.monotonic()

    def _node_changed(self, before: Node | None, after: Node | None) -> Iterator[str]:
        either = latest(before, after)
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            self._lives.pop(before.metadata.name, None)
            self._record_event(before, "RemovingNode", "Removing Node {} from Controller")
            before = None
        if after is not None:
            if before is None:
                ready = ready_status(after)
                self._lives[after.metadata.name] = _Life(self._first_heartbeat(after), ready)
                self._record_event(after, "RegisteredNode", "Registered Node {} in Controller")
            elif _has_heartbeat(before, after):
                self._lives[after.metadata.name].heartbeat = self._clock.monotonic()
            yield after.metadata.name
        if before is None or after is None or ready_status(before) != ready_status(after):
            self._is_outage_stale = True
            # A deleted node has no more work, but the zones must be recomputed.
            yield either.metadata.name

    def _first_heartbeat(self, node: Node) -> float:
        """Return the current monotonic time, or the creation time of a node that never reported."""
        now = self._clock.monotonic()
        created = node.metadata.creation_timestamp
        if ready_status(node) is not None or not created:
            return now
        return now - max(0.0, (self._clock.now() - parse_time(created)).total_seconds())

    def _check_nodes(self) -> None:
        """Recompute the state of the zones; if it changed, requeue every node."""
        before, self._is_outage_stale = self._outage, False
        self._outage = outage_of(self._nodes, self._options.unhealthy_zone_share)
        if before.is_total and not self._outage.is_total:
            # We could not reach the API, so the time until now does not count.
            now = self._clock.monotonic()
            for life in self._lives.values():
                life.heartbeat = now
        if before.states != self._outage.states:
            for node in self._nodes:
                self._loop.add(node.metadata.name)

    def _record_event(self, node: Node, reason: str, what: str) -> None:
        name = node.metadata.name
        message = f"Node {name} event: {what.format(name)}"
        self._recorder.record(_about(node), NORMAL, reason, message)

    async def _reconcile(self, name: str) -> float | None:
        if self._is_outage_stale:
            self._check_nodes()
        node = self._nodes.get(name)
        life = self._lives.get(name)
        if node is None or life is None:
            return None
        left_s = life.heartbeat + self._grace_s(node) - self._clock.monotonic()
        if left_s < 0:
            node = await self._mark_unknown(node)
        await self._follow_readiness(node, life)
        turn_s = await self._set_taints(node)
        # A silent node's next word comes as an event.
        waits = (left_s + 0.001 if left_s >= 0 else None, turn_s)
        return min((wait for wait in waits if wait is not None), default=None)

    def _grace_s(self, node: Node) -> float:
        if ready_status(node) is None:
            return self._options.node_startup_grace_period_s
        return self._options.node_grace_period_s

    async def _mark_unknown(self, node: Node) -> Node:
        conditions = unknown_conditions(node, self._clock.now())
        if not conditions:
            return node
        patch = {"metadata": locked(node.metadata), "status": {"conditions": conditions}}
        return await self._client.patch(
            NODES, node.metadata.name, patch, kind=PatchType.STRATEGIC, subresource="status"
        )

    async def _follow_readiness(self, node: Node, life: _Life) -> None:
        """Set the pods of a node that stops being ready to not ready, and record an event."""
        ready = ready_status(node)
        if life.ready == TRUE and ready != TRUE:
            message = f"Node {node.metadata.name} status is now: NodeNotReady"
            self._recorder.record(_about(node), NORMAL, "NodeNotReady", message)
            for pod in self._pods.by_index(NODE, node.metadata.name):
                if is_ready(pod):
                    await self._mark_not_ready(pod)
        life.ready = ready

    async def _mark_not_ready(self, pod: Pod) -> None:
        stamp = format_time(self._clock.now())
        condition = {"type": READY, "status": "False", "lastTransitionTime": stamp}
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        try:
            await self._client.patch(
                PODS, pod.metadata.name, patch, pod.metadata.namespace,
                kind=PatchType.STRATEGIC, subresource="status",
            )  # fmt: skip
        except NotFoundError:
            return  # It is gone.
        about = reference(PODS, pod)
        self._recorder.record(about, WARNING, "NodeNotReady", "Node is not ready")

    async def _set_taints(self, node: Node) -> float | None:
        """Update the node's taints if they differ.

        Returns the seconds until the node may get its evicting taint, if it has to wait for that.
        """
        wait_s: float | None = None
        evicting = evicting_key(ready_status(node))
        if self._outage.is_total:
            evicting = None
        elif evicting is not None and not has_evicting_taint(node):
            wait_s = self._turn_s(node)
            if wait_s != 0:
                evicting = None
        taints = taints_after(node, evicting, self._clock.now())
        if taints != node.spec.taints:
            patch = {
                "metadata": locked(node.metadata),
                "spec": {"taints": msgspec.to_builtins(taints) or None},
            }
            await self._client.patch(NODES, node.metadata.name, patch)
        return wait_s or None

    def _turn_s(self, node: Node) -> float | None:
        zone = zone_of(node)
        per_s = self._outage.evictions_per_s(zone, self._options)
        return self._pace.wait_s(zone, per_s, self._clock.monotonic())


def _has_heartbeat(before: Node, after: Node) -> bool:
    """Return whether the node agent wrote the status; this controller sets no heartbeat."""

    def heartbeat(node: Node) -> str | None:
        ready = (condition for condition in node.status.conditions if condition.type == READY)
        return next((condition.last_heartbeat_time for condition in ready), None)

    return heartbeat(before) != heartbeat(after) or (
        ready_status(before) != ready_status(after) and ready_status(after) != "Unknown"
    )


def _about(node: Node) -> ObjectReference:
    return reference(NODES, node)


# Eviction rates by zone. Pure except for its rate limiters.
#
# Many nodes lost at once are more likely partitioned than dead: evictions then slow down, and stop
# when no node is reachable. Source: API docs "Rate limits on eviction".

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
