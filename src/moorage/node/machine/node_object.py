"""Node object: registers this node in the API and keeps its status up to date.

The status is written when it has changed, and every few minutes as a heartbeat; the lease is the
cheaper heartbeat. Taints and others' labels are left to controllers. Source: core/v1 Node; kubelet
`kubelet_node_status.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.errors import AlreadyExistsError, NotFoundError, StatusError
from moorage.api.logs import Log
from moorage.api.meta import ObjectReference
from moorage.api.nodes import ARCH, HOSTNAME, OS, ContainerImage, Node, NodeCondition, NodeStatus
from moorage.node.machine.engine_health import EngineHealth
from moorage.node.machine.facts import MachineFacts
from moorage.node.machine.node_status import (
    PRESSURE_EVENTS,
    NodeStatusInputs,
    extended_resources,
    images_of,
    node_status,
)
from moorage.node.machine.pressure import NodePressure
from moorage.node.machine.shutdown import NodeShutdown
from moorage.node.notifier import Notifier
from moorage.node.options import NodeOptions
from moorage.node.runtime.engine import Engine
from moorage.wire.client.backoff import Backoff
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder
from moorage.wire.client.resources import NODES
from moorage.wire.client.rest import Client, PatchType, UnreachableError
from moorage.wire.cri import CriError

log = Log(__name__)

_LOOK_PERIOD_S = 10.0
_MERGED_LISTS = frozenset({"addresses"})


class NodeObject:
    """Maintains the Node of this agent. `run()` registers it and blocks until cancelled."""

    def __init__(
        self,
        *,
        client: Client,
        engine: Engine,
        health: EngineHealth,
        recorder: EventRecorder,
        clock: Clock,
        options: NodeOptions,
        facts: MachineFacts,
        addresses: tuple[str, ...],
        capacity: Mapping[str, str],
        allocatable: Mapping[str, str],
        pressure: NodePressure,
        shutdown: NodeShutdown,
    ) -> None:
        self._client = client
        self._engine = engine
        self._health = health
        self._recorder = recorder
        self._clock = clock
        self._options = options
        self._facts = facts
        self._addresses = addresses
        self._capacity = capacity
        self._allocatable = allocatable
        self._stored: Node | None = None
        self._images: list[ContainerImage] = []
        self._pressure = pressure
        self._shutdown = shutdown
        self._wake = Notifier(clock)
        self._written_s = float("-inf")
        self._registered = asyncio.Event()
        health.add_listener(self._wake.call)
        pressure.add_listener(self._wake.call)
        shutdown.add_listener(self._wake.call)

    @property
    def node(self) -> Node | None:
        """Return the object as last seen."""
        return self._stored

    async def wait_registered(self) -> None:
        """Block until the node is registered in the API."""
        await self._registered.wait()

    def seen(self, node: Node) -> None:
        """Store the newest object from the watch."""
        self._stored = node

    async def run(self) -> None:
        """Report the node's status at changes and each period; blocks until cancelled."""
        backoff = Backoff(first_s=0.2, limit_s=10.0)
        self._event("Starting", "Starting node agent.")
        # The first status must not claim that the engine is down.
        await self._health.wait_checked()
        while True:
            try:
                await self._keep()
                backoff.reset()
                await self._wake.wait(_LOOK_PERIOD_S)
            except NotFoundError:
                # The node was deleted: register it again.
                self._stored = None
            except (StatusError, UnreachableError) as error:
                pause_s = backoff.next_s()
                log.warning("node status not written", error=error, retry_s=round(pause_s, 1))
                await self._clock.sleep(pause_s)

    async def _keep(self) -> None:
        """Update the API object, once."""
        await self._read_status()
        if self._stored is None:
            await self._register()
            return
        now_s = self._clock.monotonic()
        before, after = self._stored.status, self._status(self._stored.status)
        is_due = now_s - self._written_s >= self._options.status_period_s
        if not is_due and _timeless(before) == _timeless(after):
            return
        await self._write(before, after)
        self._written_s = now_s

    async def _read_status(self) -> None:
        if self._health.runtime_problem is None:
            try:
                self._images = images_of(await self._engine.images())
            except CriError as error:
                log.warning("images not listed", error=error)

    def _status(self, before: NodeStatus) -> NodeStatus:
        others = extended_resources(before.capacity)
        health, server = self._health, self._options.server
        problems = [
            problem
            for problem in (health.runtime_problem, health.network_problem, self._shutdown.problem)
            if problem
        ]
        return node_status(
            NodeStatusInputs(
                facts=self._facts,
                capacity={**others, **self._capacity},
                allocatable={**others, **self._allocatable},
                addresses=self._addresses,
                hostname=self._options.hostname or self._facts.hostname,
                port=server.port if server is not None else 0,
                engine_name=health.engine_name,
                engine_version=health.engine_version,
                problems=problems,
                handlers=health.handlers,
                has_groups_policy=health.has_groups_policy,
                images=self._images,
                pressure=self._pressure.conditions,
                before=before.conditions,
                stamp=format_time(self._clock.now()),
            )
        )

    async def _register(self) -> None:
        status = self._status(NodeStatus())
        node = {
            "metadata": {
                "name": self._options.name,
                "labels": {**self._own_labels(), **self._options.labels},
            },
            "spec": {"taints": self._options.taints} if self._options.taints else {},
            "status": status,
        }
        try:
            self._stored = await self._client.create(NODES, node)
            self._written_s = self._clock.monotonic()
            log.info("node registered", node=self._options.name, ready=self._health.is_ready)
            self._announce((), status.conditions)
        except AlreadyExistsError:
            self._stored = await self._client.get(NODES, self._options.name)
            await self._correct_labels(self._stored)
            self._wake.call()
        self._registered.set()

    def _own_labels(self) -> dict[str, str]:
        return {
            HOSTNAME: self._options.hostname or self._facts.hostname,
            OS: "linux",
            ARCH: self._facts.architecture,
        }

    async def _correct_labels(self, node: Node) -> None:
        wanted = self._own_labels() | dict(self._options.labels)
        wrong = {
            key: value for key, value in wanted.items() if node.metadata.labels.get(key) != value
        }
        if wrong:
            patch = {"metadata": {"labels": wrong}}
            self._stored = await self._client.patch(NODES, self._options.name, patch)

    async def _write(self, before: NodeStatus, after: NodeStatus) -> None:
        patch = {"status": status_changes(before, after)}
        self._stored = await self._client.patch(
            NODES, self._options.name, patch, kind=PatchType.STRATEGIC, subresource="status"
        )
        self._announce(before.conditions, after.conditions)

    def _announce(
        self, before: tuple[NodeCondition, ...], after: tuple[NodeCondition, ...]
    ) -> None:
        earlier = {condition.type: condition.status for condition in before}
        for condition in after:
            if earlier.get(condition.type) == condition.status:
                continue
            reason = PRESSURE_EVENTS[condition.type, condition.status]
            self._event(reason, f"Node {self._options.name} status is now: {reason}")
            log.info(
                "node condition",
                type=condition.type,
                status=condition.status,
                message=condition.message,
            )

    def report_threshold(self, resource: str) -> None:
        """Record that an eviction threshold of a resource is met."""
        self._event("EvictionThresholdMet", f"Attempting to reclaim {resource}", WARNING)

    def report_shutdown(self) -> None:
        """Record that a shutdown of the host has begun, or was cancelled."""
        what = "shutdown event" if self._shutdown.is_begun else "shutdown cancellation"
        self._event("Shutdown", f"Shutdown manager detected {what}")

    def _event(self, reason: str, message: str, type_: str = NORMAL) -> None:
        # As the kubelet, use the node's name as the events' uid: `kubectl describe` selects by it.
        name = self._options.name
        about = ObjectReference(kind="Node", api_version="v1", name=name, uid=name)
        self._recorder.record(about, type_, reason, message)


def status_changes(before: NodeStatus, after: NodeStatus) -> dict[str, Any]:
    """Return the strategic merge patch from one status to another.

    It always includes the conditions, for their heartbeats.
    """
    old: dict[str, Any] = msgspec.to_builtins(before)
    new: dict[str, Any] = msgspec.to_builtins(after)
    changes: dict[str, Any] = {"conditions": new.pop("conditions", [])}
    for field in OWNED_FIELDS:
        if old.get(field) == new.get(field):
            continue
        value = new.get(field)
        if isinstance(value, dict) and field in old:
            value = {**value, "$patch": "replace"}
        elif field in _MERGED_LISTS and value is not None and field in old:
            value = [*value, {"$patch": "replace"}]
        changes[field] = value
    return changes


OWNED_FIELDS = (
    "capacity",
    "allocatable",
    "addresses",
    "daemonEndpoints",
    "nodeInfo",
    "images",
    "runtimeHandlers",
    "features",
)


def _timeless(status: NodeStatus) -> tuple[Any, ...]:
    """Return the parts of a status whose change requires a write."""
    plain: dict[str, Any] = msgspec.to_builtins(status)
    conditions = sorted(
        (condition.type, condition.status, condition.reason, condition.message)
        for condition in status.conditions
        if (condition.type, condition.status) in PRESSURE_EVENTS
    )
    return (conditions, *(plain.get(field) for field in OWNED_FIELDS))
