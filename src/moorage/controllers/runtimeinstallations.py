"""Controller of RuntimeInstallations: lets nodes change in waves, and sums up what they say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from moorage.api.clock import Clock, parse_time
from moorage.api.conditions import is_ready, is_true
from moorage.api.errors import ConflictError, NotFoundError
from moorage.api.meta import Condition
from moorage.api.nodes import ARCH
from moorage.api.runtime_installations import DEGRADED, FINALIZER, READY, RuntimeInstallation
from moorage.controllers.informers import Informers
from moorage.controllers.loop import After, Loop, Queued
from moorage.controllers.objects import Node
from moorage.controllers.requests import locked, status_patch
from moorage.runtimeclass.installations import NodeFacts, TargetNode, plan_waves
from moorage.wire.client.informer import Informer
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import RUNTIME_INSTALLATIONS
from moorage.wire.client.rest import Client, PatchType

# Controller of RuntimeInstallations: which nodes may change now, and how far all are.
#
# Nodes install by themselves and write their own entries of the status; this writes the rest, and
# the finalizer that keeps an object until no living node has its runtime.

# Several nodes write their entries at once.
_GATHER_S = 0.2
_NODE_READY = "Ready"
_EVENTS = {READY: (NORMAL, "Installed"), DEGRADED: (WARNING, "NodesFailed")}


class RuntimeInstallationController:
    """Watches installations and nodes; patches the installations' status."""

    def __init__(
        self, client: Client, informers: Informers, recorder: EventRecorder, clock: Clock
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._nodes = informers.nodes
        self._installations = Informer(client, RUNTIME_INSTALLATIONS, clock=clock)
        self.run = Loop(
            "runtime installations",
            self._reconcile,
            [(self._installations, self._installation_changed)],
            clock,
            owned=[self._installations],
            late=[(self._nodes, self._node_changed)],
        ).run

    def _installation_changed(
        self, before: RuntimeInstallation | None, after: RuntimeInstallation | None
    ) -> Iterator[Queued[str]]:
        if after is not None:
            if before is None or before.metadata.generation != after.metadata.generation:
                yield after.metadata.name
            else:
                yield After(after.metadata.name, _GATHER_S)

    def _node_changed(self, before: Node | None, after: Node | None) -> Iterator[Queued[str]]:
        if before is None or after is None or _target(before) != _target(after):
            for installation in self._installations:
                yield After(installation.metadata.name, _GATHER_S)

    async def _reconcile(self, name: str) -> float | None:
        installation = self._installations.get(name)
        if installation is None:
            return None
        meta, now = installation.metadata, self._clock.now()
        try:
            if meta.deletion_timestamp is None and FINALIZER not in meta.finalizers:
                await self._write_finalizers(installation, (*meta.finalizers, FINALIZER))
                return None
            plan = plan_waves(installation, [_target(node) for node in self._nodes], now)
            if plan.status != installation.status:
                body = status_patch(meta, installation.status, plan.status)
                await self._client.patch(RUNTIME_INSTALLATIONS, name, body, subresource="status")
                self._record(installation, plan.status.conditions)
                return None
            if plan.is_done and FINALIZER in meta.finalizers:
                left = tuple(one for one in meta.finalizers if one != FINALIZER)
                await self._write_finalizers(installation, left)
                return None
        except ConflictError:
            # A node wrote its entry meanwhile, which comes as a change.
            return _GATHER_S
        except NotFoundError:
            return None
        return None if plan.due is None else _seconds(now, plan.due)

    async def _write_finalizers(
        self, installation: RuntimeInstallation, finalizers: tuple[str, ...]
    ) -> None:
        meta = installation.metadata
        body = {"metadata": {**locked(meta), "finalizers": list(finalizers)}}
        await self._client.patch(RUNTIME_INSTALLATIONS, meta.name, body, kind=PatchType.MERGE)

    def _record(self, before: RuntimeInstallation, conditions: tuple[Condition, ...]) -> None:
        """Record an event where a condition has come true."""
        about = reference(RUNTIME_INSTALLATIONS, before)
        earlier = before.status.conditions
        for type_, (kind, reason) in _EVENTS.items():
            if is_true(conditions, type_) and not is_true(earlier, type_):
                message = next(one.message for one in conditions if one.type == type_)
                self._recorder.record(about, kind, reason, message)


def _target(node: Node) -> TargetNode:
    facts = NodeFacts(
        name=node.metadata.name,
        labels=node.metadata.labels,
        architecture=node.metadata.labels.get(ARCH, ""),
    )
    return TargetNode(facts, _unready_since(node))


def _unready_since(node: Node) -> datetime | None:
    """Return since when a node is not ready; its creation for one that never was."""
    if is_ready(node.status.conditions):
        return None
    since = next(
        (
            condition.last_transition_time
            for condition in node.status.conditions
            if condition.type == _NODE_READY
        ),
        None,
    )
    return parse_time(since or node.metadata.creation_timestamp or "1970-01-01T00:00:00Z")


def _seconds(now: datetime, due: datetime) -> float:
    # Times of objects are whole seconds.
    return max(0.0, (due - now).total_seconds()) + 1.0
