"""Answers of `metrics.k8s.io`: get and list of NodeMetrics and PodMetrics.

Labels and names are those of the nodes and pods themselves. Source: metrics-server
`pkg/api`, whose texts clients know.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Self

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.durations import format_duration
from moorage.api.errors import NotFoundError
from moorage.api.quantity import NANO, Family, Quantity
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.computed import ComputedReplies
from moorage.apiserver.endpoints.node_agents import NodeAgent, NodeTls, agent_of
from moorage.apiserver.endpoints.readers import Readers
from moorage.apiserver.endpoints.replies import Reply
from moorage.apiserver.endpoints.resource_metrics.scraper import AgentReader, NodeScraper
from moorage.apiserver.endpoints.resource_metrics.usage import Measurement, Usage
from moorage.apiserver.registry.kind import Obj
from moorage.apiserver.registry.kinds.node import NODE
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.selection import select
from moorage.apiserver.registry.stored import Stored

_FIELDS = [selectable.label for selectable in POD.selectable]
_NODE_NAME, _PHASE = _FIELDS.index("spec.nodeName"), _FIELDS.index("status.phase")
_RUNNING = "Running"


class _Identity(msgspec.Struct):
    uid: str = ""


class _Head(msgspec.Struct):
    metadata: _Identity


_head = msgspec.json.Decoder(_Head).decode


class ResourceMetrics:
    """Serves what nodes and pods use."""

    def __init__(self, readers: Readers, node_tls: NodeTls, clock: Clock) -> None:
        self._readers = readers
        self._clock = clock
        self._replies = ComputedReplies(clock, has_protobuf=False)
        self._agents = AgentReader(node_tls)
        self._scraper = NodeScraper(self._agents.fetch, clock)

    async def __aenter__(self) -> Self:
        await self._agents.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._agents.close()

    async def get_node(self, call: Call) -> Reply:
        """Answer GET of a node's usage. Raises NotFoundError."""
        name = call.target.name
        measured = await self._of_nodes([self._readers.get(NODE, "", name)])
        if not measured:
            raise NotFoundError.of("nodemetrics", name, group=call.kind.group)
        return self._replies.reply(call, measured[0])

    async def list_nodes(self, call: Call) -> Reply:
        """Answer GET of the nodes' usage."""
        return self._replies.list_reply(call, await self._of_nodes(self._selected(call)))

    async def get_pod(self, call: Call) -> Reply:
        """Answer GET of a pod's usage. Raises NotFoundError."""
        path = f"{call.namespace}/{call.target.name}"
        pod = self._readers.find(POD, call.namespace, call.target.name)
        if pod is None:
            raise NotFoundError.of("pods", path)
        measured = await self._of_pods([pod])
        if not measured:
            raise NotFoundError.of("podmetrics", path, group=call.kind.group)
        return self._replies.reply(call, measured[0])

    async def list_pods(self, call: Call) -> Reply:
        """Answer GET of the usage of pods."""
        return self._replies.list_reply(call, await self._of_pods(self._selected(call)))

    def _selected(self, call: Call) -> list[Stored]:
        query = call.query
        selection = select(
            call.kind,
            call.served,
            query.get("labelSelector", ""),
            query.get("fieldSelector", ""),
        )
        items = self._readers.scan(POD if call.kind.is_namespaced else NODE, call.namespace)
        return [item for item in items if selection.matches(item)]

    async def _of_nodes(self, nodes: list[Stored]) -> list[Obj]:
        measurements = await self._measure(nodes)
        shown = []
        for node in nodes:
            measurement = measurements.get(node.name)
            usage = measurement.node() if measurement is not None else None
            if measurement is not None and usage is not None:
                shown.append({**self._window(node, measurement), "usage": _amounts(usage)})
        return shown

    async def _of_pods(self, pods: list[Stored]) -> list[Obj]:
        running = [pod for pod in pods if pod.fields[_PHASE] == _RUNNING]
        names = dict.fromkeys(pod.fields[_NODE_NAME] for pod in running)
        found = (self._readers.find(NODE, "", name) for name in names)
        measurements = await self._measure(node for node in found if node is not None)
        shown = []
        for pod in running:
            measurement = measurements.get(pod.fields[_NODE_NAME])
            if measurement is None:
                continue
            containers = measurement.pod(_head(b"{" + pod.tail).metadata.uid)
            if containers is not None:
                listed = [
                    {"name": name, "usage": _amounts(usage)}
                    for name, usage in sorted(containers.items())
                ]
                shown.append({**self._window(pod, measurement), "containers": listed})
        return shown

    async def _measure(self, nodes: Iterable[Stored]) -> dict[str, Measurement]:
        agents = {node.name: partial(_agent, node) for node in nodes}
        if not agents:
            return {}
        existing = (node.name for node in self._readers.scan(NODE, ""))
        return await self._scraper.measure(agents, existing)

    def _window(self, item: Stored, measurement: Measurement) -> Obj:
        metadata: Obj = {"name": item.name}
        if item.namespace:
            metadata["namespace"] = item.namespace
        metadata["creationTimestamp"] = format_time(self._clock.now())
        if item.labels:
            metadata["labels"] = dict(item.labels)
        return {
            "metadata": metadata,
            "timestamp": format_time(measurement.time),
            "window": format_duration(round(measurement.window_s, 3)),
        }


def _agent(node: Stored) -> NodeAgent:
    return agent_of(node.obj)


def _amounts(usage: Usage) -> dict[str, str]:
    return {
        "cpu": str(Quantity(usage.cpu_nanocores)),
        "memory": str(Quantity(usage.memory_bytes * NANO, Family.BINARY)),
    }
