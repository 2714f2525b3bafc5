"""Pod usage: CPU and memory of pods, and what their sandboxes cost, read through the API.

The node's summary has the pod's cgroup beside its containers, so the difference is the sandbox:
the overhead in use. Where the summary may not be read, `metrics.k8s.io` has the containers alone.
Source: kubelet `stats/v1alpha1`, metrics.k8s.io/v1beta1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from moorage.api.errors import StatusError
from moorage.api.quantity import parse as parse_quantity
from moorage.wire.client.node_summary import NodeSummary, PodFigures, read_summary_body
from moorage.wire.client.rest import Client, UnreachableError

_METRICS = "/apis/metrics.k8s.io/v1beta1"
_PARALLEL = 8
_SHARED_BYTES = 4 * 2**20
"""A larger pod of which nothing is left beside its containers shares one cgroup with them."""


class PodUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod uses; None where it is not known.

    `cpu_ns` is CPU time since its start, `cpu_cores` the present use, `memory_bytes` the working
    set, all of the whole pod; `overhead_*` is what is not its containers'. The overhead is not
    known where the runtime's own processes count as the containers', as those of gVisor do.
    """

    cpu_ns: int | None = None
    cpu_cores: float | None = None
    memory_bytes: int | None = None
    overhead_cpu_cores: float | None = None
    overhead_memory_bytes: int | None = None


class _Ref(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Usage(msgspec.Struct):
    memory: str = "0"
    cpu: str = "0"


class _ContainerMetrics(msgspec.Struct):
    usage: _Usage = msgspec.field(default_factory=_Usage)


class _PodMetrics(msgspec.Struct):
    metadata: _Ref = msgspec.field(default_factory=_Ref)
    containers: list[_ContainerMetrics] | None = None


class _PodMetricsList(msgspec.Struct):
    items: list[_PodMetrics] | None = None


async def read_usage(
    client: Client, nodes: Iterable[str], namespace: str | None = None
) -> dict[str, PodUsage]:
    """Return the usage of pods by `namespace/name`, from the summaries of these nodes.

    A node that does not answer is left out; if none does, the answer is of `metrics.k8s.io`, or
    empty. `namespace` limits the latter.
    """
    slots = asyncio.Semaphore(_PARALLEL)

    async def read(node: str) -> dict[str, PodUsage] | None:
        async with slots:
            try:
                return summary_usage(await read_summary_body(client, node))
            except (StatusError, UnreachableError, msgspec.DecodeError):
                return None

    answers = await asyncio.gather(*(read(node) for node in dict.fromkeys(nodes) if node))
    known = [answer for answer in answers if answer is not None]
    if known or not answers:
        return {key: usage for answer in known for key, usage in answer.items()}
    return await _from_metrics(client, namespace)


def summary_usage(body: bytes) -> dict[str, PodUsage]:
    """Return the usage by `namespace/name` of a node's summary. Raises msgspec.DecodeError."""
    summary = msgspec.json.decode(body, type=NodeSummary)
    return {f"{pod.pod_ref.namespace}/{pod.pod_ref.name}": _of(pod) for pod in summary.pods or ()}


def _of(pod: PodFigures) -> PodUsage:
    containers = pod.containers or ()
    memory = pod.memory.working_set_bytes if pod.memory is not None else None
    rate = pod.cpu.usage_nano_cores if pod.cpu is not None else None
    inner_memory = sum((one.memory and one.memory.working_set_bytes) or 0 for one in containers)
    inner_rate = sum((one.cpu and one.cpu.usage_nano_cores) or 0 for one in containers)
    overhead = None if memory is None else max(0, memory - inner_memory)
    if overhead == 0 and memory is not None and memory > _SHARED_BYTES:
        rate_overhead = overhead = None
    else:
        rate_overhead = None if rate is None else max(0, rate - inner_rate) / 1e9
    return PodUsage(
        cpu_ns=pod.cpu.usage_core_nano_seconds if pod.cpu is not None else None,
        cpu_cores=None if rate is None else rate / 1e9,
        memory_bytes=memory,
        overhead_cpu_cores=rate_overhead,
        overhead_memory_bytes=overhead,
    )


async def _from_metrics(client: Client, namespace: str | None) -> dict[str, PodUsage]:
    scope = f"/namespaces/{namespace}" if namespace else ""
    try:
        body = await client.request("GET", f"{_METRICS}{scope}/pods")
        answer = msgspec.json.decode(body, type=_PodMetricsList)
        return {
            f"{pod.metadata.namespace}/{pod.metadata.name}": PodUsage(
                memory_bytes=sum(
                    parse_quantity(one.usage.memory).value for one in pod.containers or ()
                ),
                cpu_cores=sum(parse_quantity(one.usage.cpu).milli for one in pod.containers or ())
                / 1000,
            )
            for pod in answer.items or ()
        }
    except (StatusError, UnreachableError, ValueError):
        return {}
