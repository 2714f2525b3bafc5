"""Shim statistics: a task's usage from the cgroup metrics that a shim's Stats returns. Pure.

A guest's processes are in no cgroup of the host, so that only the shim can count them. Source:
containerd/cgroups, `io.containerd.cgroups.v1.Metrics` and `v2.Metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError

from moorage.engine.handlers.adapters.adapter import AdapterError, TaskUsage
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb

_NS_PER_US = 1000
# Version 1 writes "no limit" as the largest number of pages in bytes, version 2 as the largest
# number.
_UNLIMITED = 1 << 62
_MOST_NAME = 100


def task_usage(stats: AnyMessage) -> TaskUsage:
    """Return the usage in a shim's statistics.

    A part that the shim left out is None. Raises AdapterError for another type than cgroup metrics
    and for bytes that are no message of their type.
    """
    name = stats.type_url.rpartition("/")[2]
    parse = _PARSERS.get(name)
    if parse is None:
        raise AdapterError(
            f"the shim's statistics are of type {name[:_MOST_NAME]!r}, not cgroup metrics"
        )
    try:
        return parse(stats.value)
    except DecodeError as error:
        raise AdapterError(f"the shim's statistics are no {name}") from error


def _v1(content: bytes) -> TaskUsage:
    metrics = pb.MetricsV1.FromString(content)
    cpu_ns = metrics.cpu.usage.total if metrics.HasField("cpu") else None
    pids = metrics.pids.current if metrics.HasField("pids") else None
    if not metrics.HasField("memory"):
        return TaskUsage(cpu_ns=cpu_ns, pids=pids)
    memory = metrics.memory
    limit = _limit(memory.usage.limit)
    # Version 1 counts memory and swap together.
    both, both_limit = memory.swap.usage, _limit(memory.swap.limit)
    return TaskUsage(
        cpu_ns=cpu_ns,
        memory=memory.usage.usage,
        inactive_file=memory.total_inactive_file,
        rss=memory.total_rss,
        page_faults=memory.total_pgfault,
        major_page_faults=memory.total_pgmajfault,
        memory_limit=limit,
        swap=max(both - memory.usage.usage, 0) if memory.HasField("swap") else None,
        swap_limit=None if limit is None or both_limit is None else max(both_limit - limit, 0),
        pids=pids,
    )


def _v2(content: bytes) -> TaskUsage:
    metrics = pb.MetricsV2.FromString(content)
    cpu_ns = metrics.cpu.usage_usec * _NS_PER_US if metrics.HasField("cpu") else None
    pids = metrics.pids.current if metrics.HasField("pids") else None
    if not metrics.HasField("memory"):
        return TaskUsage(cpu_ns=cpu_ns, pids=pids)
    memory = metrics.memory
    return TaskUsage(
        cpu_ns=cpu_ns,
        memory=memory.usage,
        inactive_file=memory.inactive_file,
        rss=memory.anon,
        page_faults=memory.pgfault,
        major_page_faults=memory.pgmajfault,
        memory_limit=_limit(memory.usage_limit),
        swap=memory.swap_usage,
        swap_limit=_limit(memory.swap_limit),
        pids=pids,
    )


def _limit(value: int) -> int | None:
    """Return a limit; None without one, and for 0, which stands for a figure left out."""
    return value if 0 < value < _UNLIMITED else None


_PARSERS: Mapping[str, Callable[[bytes], TaskUsage]] = {
    "io.containerd.cgroups.v1.Metrics": _v1,
    "io.containerd.cgroups.v2.Metrics": _v2,
}
