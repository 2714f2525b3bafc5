"""Usage from totals: two samples of a node agent's statistics make one measurement.

CPU is the rate between both, memory the amount at the second. Source: kubelet `stats/v1alpha1`
Summary; metrics-server `pkg/storage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

_NANO = 1_000_000_000
_MOST_CONTAINERS = 10_000


class _Cpu(msgspec.Struct, rename="camel"):
    usage_core_nano_seconds: int | None = None


class _Memory(msgspec.Struct, rename="camel"):
    working_set_bytes: int | None = None


class _Used(msgspec.Struct):
    cpu: _Cpu | None = None
    memory: _Memory | None = None


class _Container(msgspec.Struct):
    name: str
    cpu: _Cpu | None = None
    memory: _Memory | None = None


class _PodRef(msgspec.Struct):
    uid: str


class _Pod(msgspec.Struct, rename="camel"):
    pod_ref: _PodRef
    containers: list[_Container] | None = None


class _Summary(msgspec.Struct):
    node: _Used
    pods: list[_Pod] | None = None


_decode = msgspec.json.Decoder(_Summary).decode


class Totals(msgspec.Struct, frozen=True):
    """CPU time since the start, and memory in use."""

    cpu_ns: int
    memory_bytes: int


class Sample(msgspec.Struct, frozen=True):
    """A node agent's totals at one moment. `at_s` is monotonic; `pods` by UID and container.

    A container without totals is None: it does not run, or was not measured yet.
    """

    at_s: float
    time: datetime
    node: Totals | None
    pods: Mapping[str, Mapping[str, Totals | None]]


class Usage(msgspec.Struct, frozen=True):
    """What is used: billionths of a CPU, bytes."""

    cpu_nanocores: int
    memory_bytes: int


class Measurement(msgspec.Struct, frozen=True):
    """Two samples of one node, of which the second is the later."""

    before: Sample
    after: Sample

    @property
    def window_s(self) -> float:
        return self.after.at_s - self.before.at_s

    @property
    def time(self) -> datetime:
        return self.after.time

    def node(self) -> Usage | None:
        """Return the usage of the node; None if it was not measured twice."""
        return self._usage(self.before.node, self.after.node)

    def pod(self, uid: str) -> dict[str, Usage] | None:
        """Return the usage of a pod by container; None unless each was measured twice."""
        after, before = self.after.pods.get(uid), self.before.pods.get(uid, {})
        if not after:
            return None
        measured: dict[str, Usage] = {}
        for name, totals in after.items():
            usage = self._usage(before.get(name), totals)
            if usage is None:
                return None
            measured[name] = usage
        return measured

    def _usage(self, before: Totals | None, after: Totals | None) -> Usage | None:
        if before is None or after is None or self.window_s <= 0:
            return None
        used_ns = after.cpu_ns - before.cpu_ns
        if used_ns < 0:
            return None  # It was started again in between.
        return Usage(int(used_ns / self.window_s), after.memory_bytes)


def read_summary(body: bytes, at_s: float, time: datetime) -> Sample:
    """Return the sample in a `/stats/summary`. Raises ValueError for one that is malformed."""
    summary = _decode(body)
    pods = summary.pods or []
    count = sum(len(pod.containers or ()) for pod in pods)
    if count > _MOST_CONTAINERS:
        raise ValueError(f"{count} containers are more than {_MOST_CONTAINERS}")
    return Sample(
        at_s,
        time,
        _totals(summary.node),
        {pod.pod_ref.uid: _containers(pod.containers or ()) for pod in pods},
    )


def _containers(containers: Iterable[_Container]) -> dict[str, Totals | None]:
    return {container.name: _totals(container) for container in containers}


def _totals(used: _Used | _Container) -> Totals | None:
    cpu_ns = used.cpu.usage_core_nano_seconds if used.cpu is not None else None
    memory = used.memory.working_set_bytes if used.memory is not None else None
    if cpu_ns is None or memory is None or cpu_ns < 0 or memory < 0:
        return None
    return Totals(cpu_ns, memory)
