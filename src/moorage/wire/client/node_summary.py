"""Node summaries: what a node's pods and containers use, read through the API server.

The kubelet's `/stats/summary` by the node's proxy, which every Kubernetes serves to those who may
`get nodes/proxy`. Source: kubelet `stats/v1alpha1`.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from moorage.api.meta import Object
from moorage.wire.client.rest import Client

_PATH = "/api/v1/nodes/{}/proxy/stats/summary"


class SummaryError(ValueError):
    """A node's answer is not a summary."""


class CpuFigures(Object, frozen=True):
    """CPU time and rate of a pod or container; None where it was not measured."""

    time: str | None = None
    usage_nano_cores: int | None = None
    usage_core_nano_seconds: int | None = None


class MemoryFigures(Object, frozen=True):
    """Memory of a pod or container in bytes; None where it was not measured."""

    time: str | None = None
    working_set_bytes: int | None = None
    rss_bytes: int | None = None


class ContainerFigures(Object, frozen=True):
    name: str = ""
    cpu: CpuFigures | None = None
    memory: MemoryFigures | None = None


class PodReference(Object, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class PodFigures(Object, frozen=True):
    """Figures of a pod: `cpu` and `memory` are those of its cgroup, sandbox included."""

    pod_ref: PodReference = PodReference()
    containers: tuple[ContainerFigures, ...] | None = ()
    cpu: CpuFigures | None = None
    memory: MemoryFigures | None = None


class NodeSummary(Object, frozen=True):
    """The part of a summary that is read. Go writes an empty list as null."""

    pods: tuple[PodFigures, ...] | None = ()


async def read_summary_body(client: Client, node: str) -> bytes:
    """Return a node's summary as JSON. Raises StatusError, UnreachableError."""
    return await client.request("GET", _PATH.format(quote(node, safe="")))


async def read_node_summary(client: Client, node: str) -> dict[str, PodFigures]:
    """Return the figures of a node's pods by uid.

    Raises StatusError, UnreachableError, and SummaryError for an answer that is none.
    """
    body = await read_summary_body(client, node)
    try:
        summary = msgspec.json.decode(body, type=NodeSummary)
    except ValueError as error:
        raise SummaryError(f"node {node}: its summary cannot be read: {error}") from error
    return {pod.pod_ref.uid: pod for pod in summary.pods or ()}
