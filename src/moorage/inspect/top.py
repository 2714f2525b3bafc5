"""Rows of `moor top`: for each class pods, starts, latency, overhead, failures.

Pure but for `ClassWatch`, which follows the API. A start counts when the pod's containers have been
started; starts of the last minute give the rate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from moorage.api.clock import parse_time
from moorage.api.conditions import is_ready
from moorage.api.errors import StatusError
from moorage.api.pods import ContainerStatus, Pod
from moorage.api.quantity import parse as parse_quantity
from moorage.api.runtime_group import RuntimeClass
from moorage.inspect.pod_findings import last_end
from moorage.runtimeclass.start_phases import percentile, phases_of
from moorage.runtimeclass.temporary_classes import is_temporary
from moorage.runtimes.known_classes import NO_CLASS
from moorage.wire.client.informer import Informer
from moorage.wire.client.node_summary import NodeSummary, PodFigures, read_summary_body
from moorage.wire.client.resources import PODS, RUNTIME_CLASSES
from moorage.wire.client.rest import Client, UnreachableError

# Pod usage: CPU and memory of pods, and what their sandboxes cost, read through the API.
#
# The node's summary has the pod's cgroup beside its containers, so the difference is the sandbox:
# the overhead in use. Where the summary may not be read, `metrics.k8s.io` has the containers alone.
# Source: kubelet `stats/v1alpha1`, metrics.k8s.io/v1beta1.

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


WINDOW_S = 60.0
"""The rate of starts is that of so many seconds."""

_MOST_STARTS = 10_000
_STUCK = frozenset({
    "CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName",
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRow:
    """One class. Latencies are milliseconds, None without a start that is known.

    `is_exact` means that node agents measured the latencies, which then count from the node's first
    sight of the pod; else they are whole seconds from the creation. Memory is bytes, of the running
    pods: `overhead_used_bytes` the median beside the containers, None where it is not known.
    """

    runtime_class: str
    handler: str
    pods: int = 0
    running: int = 0
    pending: int = 0
    failed: int = 0
    restarts: int = 0
    starts_per_s: float = 0.0
    start_p50_ms: float | None = None
    start_p90_ms: float | None = None
    is_exact: bool = False
    overhead_used_bytes: int | None = None
    overhead_declared_bytes: int | None = None
    memory_bytes: int | None = None
    cpu_cores: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """A pod's start: when it was over, in seconds of the wall clock, and how long it took."""

    runtime_class: str
    at_s: float
    latency_ms: float
    is_exact: bool


def start_of(pod: Pod) -> Start | None:
    """Return a pod's start once its containers have been started; None before."""
    phases = phases_of(pod)
    moments = [_started(status) for status in pod.status.container_statuses]
    known = [moment for moment in moments if moment is not None]
    if phases is None or not known:
        return None
    return Start(class_of(pod), max(known), round(phases.latency_ms, 1), phases.is_measured)


def _started(status: ContainerStatus) -> float | None:
    """Return when a container was started last, in seconds of the wall clock."""
    state = status.state.running or status.state.terminated or status.last_state.terminated
    return _seconds(state.started_at) if state is not None else None


def class_of(pod: Pod) -> str:
    """Return the name of a pod's class, `-` without one."""
    return pod.spec.runtime_class_name or NO_CLASS


def rows_of(
    pods: Iterable[Pod],
    classes: Iterable[RuntimeClass],
    starts: Iterable[Start],
    usages: Mapping[str, PodUsage],
    now_s: float,
) -> list[ClassRow]:
    """Return a row for each class, also one without pods, in the order of their names.

    Classes of probes and measurements are left out.
    """
    by_name = {one.metadata.name: one for one in classes}
    temporary = {name for name, one in by_name.items() if is_temporary(name, one.metadata.labels)}
    groups: dict[str, list[Pod]] = {name: [] for name in by_name}
    for pod in pods:
        groups.setdefault(class_of(pod), []).append(pod)
    by_class: dict[str, list[Start]] = {}
    for start in starts:
        by_class.setdefault(start.runtime_class, []).append(start)
    return [
        _row(name, by_name.get(name), members, by_class.get(name, []), usages, now_s)
        for name, members in sorted(groups.items())
        if name not in temporary and not is_temporary(name, {})
    ]


def _row(
    name: str,
    runtime_class: RuntimeClass | None,
    pods: list[Pod],
    starts: list[Start],
    usages: Mapping[str, PodUsage],
    now_s: float,
) -> ClassRow:
    exact = [start for start in starts if start.is_exact]
    latencies = [start.latency_ms for start in exact or starts]
    recent = sum(1 for start in starts if 0 <= now_s - start.at_s <= WINDOW_S)
    running = [pod for pod in pods if pod.status.phase == "Running"]
    used = [
        usage
        for pod in running
        if (usage := usages.get(f"{pod.metadata.namespace}/{pod.metadata.name}")) is not None
    ]
    overheads = [one.overhead_memory_bytes for one in used if one.overhead_memory_bytes is not None]
    memory = [one.memory_bytes for one in used if one.memory_bytes is not None]
    cpu = [one.cpu_cores for one in used if one.cpu_cores is not None]
    middle = percentile(overheads, 0.5)
    return ClassRow(
        runtime_class=name,
        handler=runtime_class.handler if runtime_class is not None else "",
        pods=len(pods),
        running=sum(1 for pod in running if is_ready(pod.status.conditions)),
        pending=sum(1 for pod in pods if pod.status.phase in ("", "Pending")),
        failed=sum(1 for pod in pods if has_failed(pod)),
        restarts=sum(s.restart_count for pod in pods for s in pod.status.container_statuses),
        starts_per_s=round(recent / WINDOW_S, 2),
        start_p50_ms=percentile(latencies, 0.5),
        start_p90_ms=percentile(latencies, 0.9),
        is_exact=bool(exact),
        overhead_used_bytes=None if middle is None else int(middle),
        overhead_declared_bytes=_declared(runtime_class),
        memory_bytes=sum(memory) if memory else None,
        cpu_cores=round(sum(cpu), 3) if cpu else None,
    )


def has_failed(pod: Pod) -> bool:
    """Return whether a pod has failed, or cannot go on without a correction."""
    if pod.status.phase == "Failed":
        return True
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return any(
        status.state.waiting is not None
        and (status.state.waiting.reason in _STUCK or last_end(status) is not None)
        for status in statuses
    )


def _declared(runtime_class: RuntimeClass | None) -> int | None:
    if runtime_class is None or runtime_class.overhead is None:
        return None
    text = runtime_class.overhead.pod_fixed.get("memory")
    try:
        return None if text is None else parse_quantity(text).value
    except ValueError:
        return None


def _seconds(text: str | None) -> float | None:
    try:
        return parse_time(text).timestamp() if text else None
    except ValueError:
        return None


class ClassWatch:
    """Follows pods and classes of one or all namespaces; use as `async with`.

    Starts of pods that are gone by now are kept for a minute, at most 10,000.
    """

    def __init__(self, client: Client, namespace: str | None = None) -> None:
        self._client = client
        self._namespace = namespace
        self._pods = Informer(client, PODS, namespace=namespace)
        self._classes = Informer(client, RUNTIME_CLASSES)
        self._gone: deque[Start] = deque(maxlen=_MOST_STARTS)
        self._tasks: list[asyncio.Task[None]] = []
        self.usages: dict[str, PodUsage] = {}

    async def __aenter__(self) -> Self:
        """Begin to watch. Raises StatusError, UnreachableError where listing fails."""
        # An informer would retry for ever what is refused.
        await self._client.request("GET", PODS.path(self._namespace), query={"limit": "1"})
        await self._client.request("GET", RUNTIME_CLASSES.path(), query={"limit": "1"})
        self._pods.add_handler(self._on_pod)
        self._tasks = [
            asyncio.ensure_future(informer.run()) for informer in (self._pods, self._classes)
        ]
        await self._pods.wait_synced()
        await self._classes.wait_synced()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def measure(self) -> None:
        """Read what the pods use, from their nodes. What cannot be read is left out."""
        nodes = {pod.spec.node_name for pod in self._pods if pod.status.phase == "Running"}
        self.usages = await read_usage(self._client, sorted(nodes), self._namespace)

    def rows(self, now: datetime) -> list[ClassRow]:
        """Return the present rows."""
        now_s = now.timestamp()
        while self._gone and now_s - self._gone[0].at_s > WINDOW_S:
            self._gone.popleft()
        starts = [start for pod in self._pods if (start := start_of(pod)) is not None]
        return rows_of(self._pods, self._classes, [*self._gone, *starts], self.usages, now_s)

    def _on_pod(self, before: Any, after: Any) -> None:
        if after is None:
            start = start_of(before)
            if start is not None:
                self._gone.append(start)
