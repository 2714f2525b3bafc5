"""Simulated nodes: their objects, and an agent for all of them that starts pods at once.

A pod of a handler that the node lacks, or that `broken` names, never becomes ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import cycle
from typing import Any

import msgspec

from moorage.api.clock import format_time
from moorage.api.errors import ConflictError, NotFoundError
from moorage.api.pods import Pod
from moorage.wire.client.informer import Informer, object_key
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.resources import NODES, PODS, RUNTIME_CLASSES
from moorage.wire.client.rest import Client, PatchType


class SimulatedNodes:
    """Nodes by name with their handlers, and what happens to pods there."""

    def __init__(self, client: Client, handlers: Mapping[str, tuple[str, ...]]) -> None:
        self.broken: set[str] = set()
        """Classes whose pods do not become ready."""
        self._client = client
        self._handlers = dict(handlers)
        self._turn = cycle(self._handlers)
        self._pods = Informer(client, PODS)
        self._classes = Informer(client, RUNTIME_CLASSES)
        self._queue: WorkQueue[str] = WorkQueue("simulated nodes")
        self._pods.add_handler(self._pod_changed)

    async def create(self) -> None:
        """Create the nodes, all ready."""
        await asyncio.gather(*(self._create(name) for name in self._handlers))

    async def _create(self, name: str) -> None:
        await self._client.create(NODES, {"metadata": {"name": name}})
        now = format_time(datetime.now(UTC))
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady",
                 "lastHeartbeatTime": now, "lastTransitionTime": now}  # fmt: skip
        status = {
            "conditions": [ready],
            "runtimeHandlers": [{"name": handler} for handler in self._handlers[name]],
        }
        await self._client.patch(
            NODES, name, {"status": status}, kind=PatchType.STRATEGIC, subresource="status"
        )

    async def run(self) -> None:
        """Play the nodes until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self._classes.run())
            await self._classes.wait_synced()
            tasks.create_task(self._queue.run(self._advance, workers=8))

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        del before
        if after is not None:
            self._queue.add(object_key(after.metadata))

    async def _advance(self, key: str) -> float | None:
        pod = self._pods.get_key(key)
        if pod is None:
            return None
        name, namespace = pod.metadata.name, pod.metadata.namespace
        try:
            if pod.metadata.deletion_timestamp is not None:
                await self._client.delete(PODS, name, namespace, grace_period_seconds=0)
            elif not pod.spec.node_name:
                await self._bind(pod)
            elif pod.status.phase != "Running" and self._can_run(pod):
                await self._start(pod)
        except (ConflictError, NotFoundError):
            return None
        return None

    def _can_run(self, pod: Pod) -> bool:
        is_broken = pod.spec.runtime_class_name in self.broken
        return not is_broken and self._handler(pod) in self._handlers[pod.spec.node_name]

    def _handler(self, pod: Pod) -> str:
        found = self._classes.get(pod.spec.runtime_class_name or "")
        return found.handler if found is not None else ""

    async def _start(self, pod: Pod) -> None:
        now = format_time(datetime.now(UTC))
        conditions = [
            {"type": type_, "status": "True", "lastTransitionTime": now}
            for type_ in ("PodScheduled", "Ready")
        ]
        status = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                  "conditions": conditions}  # fmt: skip
        await self._client.patch(
            PODS, pod.metadata.name, {"status": status}, pod.metadata.namespace,
            kind=PatchType.STRATEGIC, subresource="status",
        )  # fmt: skip

    async def _bind(self, pod: Pod) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        binding = {
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": _required_node(pod) or self._choose(pod)},
        }
        path = PODS.path(namespace, name, "binding")
        await self._client.request("POST", path, body=msgspec.json.encode(binding))

    def _choose(self, pod: Pod) -> str:
        """Return the next node in turn that has the pod's handler."""
        handler = self._handler(pod)
        return next(name for name in self._turn if not handler or handler in self._handlers[name])


def _required_node(pod: Pod) -> str | None:
    """Return the node that a DaemonSet's pod is made for."""
    affinity: Any = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            return str(field.values[0])
    return None
