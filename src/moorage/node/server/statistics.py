"""Resource usage of node, pods and containers: `/stats/summary` and `/metrics/resource`.

From the engine's statistics and /proc; values that are not measured are omitted. The CPU rate is
computed from two readings where the engine reports only totals. Source: kubelet `stats/v1alpha1`,
metrics.k8s.io resource metrics endpoint.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moorage.api.clock import format_time
from moorage.api.pods import Pod
from moorage.linux.cgroups import guests_outside
from moorage.linux.host import parse_meminfo
from moorage.node.cgroups.tree import CgroupUsage, pod_usage
from moorage.node.cgroups.values import pod_directory
from moorage.node.pod_facts.labels import POD_UID
from moorage.node.pods.context import NodeContext
from moorage.node.pods.pod_manager import PodManager
from moorage.node.runtime.views import State
from moorage.wire.cri import pb
from moorage.wire.metrics.exposition import Labels, exposition_text, family_lines, sample_line

_NANO = 1_000_000_000
_FRESHER_NS = _NANO

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Reading:
    at_ns: int
    total_ns: int
    rate: int


class Rates:
    """CPU rates from totals, in nanocores."""

    def __init__(self) -> None:
        self._readings: dict[str, _Reading] = {}

    def rate(self, key: str, at_ns: int, total_ns: int) -> int | None:
        """Return the rate since the previous reading; None for the first."""
        before = self._readings.get(key)
        if before is None:
            self._readings[key] = _Reading(at_ns, total_ns, 0)
            return None
        passed_ns = at_ns - before.at_ns
        if passed_ns < _FRESHER_NS:
            return before.rate
        rate = max(0, total_ns - before.total_ns) * _NANO // passed_ns
        self._readings[key] = _Reading(at_ns, total_ns, rate)
        return rate

    def keep(self, keys: set[str]) -> None:
        """Drop the readings of all other keys."""
        self._readings = {key: reading for key, reading in self._readings.items() if key in keys}


class Statistics:
    """Serves requests for usage statistics."""

    def __init__(self, context: NodeContext, pod_manager: PodManager) -> None:
        self._context = context
        self._pod_manager = pod_manager
        self._rates = Rates()

    async def summary(self) -> Json:
        """Return the summary as JSON values. Raises CriError."""
        containers = await self._context.engine.container_stats()
        sandboxes = await self._context.engine.sandbox_stats()
        node = await asyncio.to_thread(self._node)
        workers = [worker for worker in self._pod_manager if worker.is_active]
        usages = await asyncio.to_thread(
            self._usages, [worker.pod for worker in workers], sandboxes_of(sandboxes)
        )
        by_pod: dict[str, list[pb.ContainerStats]] = {}
        for container in containers:
            by_pod.setdefault(container.attributes.labels.get(POD_UID, ""), []).append(container)
        network = {sandbox.attributes.metadata.uid: sandbox for sandbox in sandboxes}
        self._rates.keep({"node", *usages, *(stats.attributes.id for stats in containers)})
        pods = [
            self._pod(
                worker.pod,
                by_pod.get(worker.uid, ()),
                network.get(worker.uid),
                usages.get(worker.uid),
            )
            for worker in workers
        ]
        return {"node": node, "pods": pods}

    async def resource_metrics(self) -> str:
        """Return the metrics for metrics-server, as Prometheus text. Raises CriError."""
        return resource_text(await self.summary())

    def running(self) -> tuple[int, dict[str, int]]:
        """Return the number of pods with a ready sandbox, and the number of containers by state.

        Pods of other clusters on the same engine are not counted.
        """
        options = self._context.options
        owners = {options.owner, options.name}
        pods = [
            pod
            for pod in self._context.observer.pods
            if any(sandbox.owner in owners for sandbox in pod.sandboxes)
        ]
        states = {state.value: 0 for state in State}
        for pod in pods:
            for container in pod.containers:
                states[container.state.value] += 1
        count = sum(1 for pod in pods if any(sandbox.is_ready for sandbox in pod.sandboxes))
        return count, states

    def _node(self) -> Json:
        now = self._context.clock.now()
        stamp = format_time(now)
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ticks = [int(field) for field in fields]
        busy_ns = (sum(ticks) - ticks[3] - ticks[4]) * _NANO // os.sysconf("SC_CLK_TCK")
        memory = parse_meminfo(Path("/proc/meminfo").read_text())
        used = memory["MemTotal"] - memory["MemFree"]
        available = memory.get("MemAvailable", memory["MemFree"])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
        rate = self._rates.rate("node", int(now.timestamp() * _NANO), busy_ns)
        return {
            "nodeName": self._context.options.name,
            "startTime": format_time(datetime.fromtimestamp(now.timestamp() - uptime_s, UTC)),
            "cpu": _present(time=stamp, usageNanoCores=rate, usageCoreNanoSeconds=busy_ns),
            "memory": {
                "time": stamp,
                "availableBytes": available,
                "usageBytes": used,
                "workingSetBytes": memory["MemTotal"] - available,
                "rssBytes": memory.get("AnonPages", 0),
            },
            "fs": _file_system(self._context.options.root_dir, stamp),
        }

    def _usages(
        self, pods: Iterable[Pod], sandboxes: Mapping[str, Collection[str]]
    ) -> dict[str, CgroupUsage]:
        """Return the pods' usage by their cgroups and their virtual machines'. Blocks."""
        tree = self._context.cgroups
        outside = guests_outside(tree.cgroups)
        usages = {
            uid: pod_usage(
                tree.cgroups,
                tree.path(pod_directory(pod)),
                outside.intersection(sandboxes.get(uid, ())),
            )
            for pod in pods
            if (uid := pod.metadata.uid)
        }
        return {uid: usage for uid, usage in usages.items() if usage is not None}

    def _pod(
        self,
        spec: Pod,
        containers: Iterable[pb.ContainerStats],
        sandbox: pb.PodSandboxStats | None,
        usage: CgroupUsage | None,
    ) -> Json:
        meta = spec.metadata
        shown = [self._container(container) for container in containers]
        pod: Json = {
            "podRef": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "startTime": meta.creation_timestamp,
            "containers": shown,
            "cpu": _sum(shown, "cpu", ("usageNanoCores", "usageCoreNanoSeconds")),
            "memory": _sum(shown, "memory", ("workingSetBytes", "usageBytes", "rssBytes")),
        }
        if usage is not None:
            self._add_cgroup(pod, meta.uid, usage)
        if sandbox is not None and sandbox.linux.HasField("network"):
            pod["network"] = _network(sandbox.linux.network)
        if sandbox is not None and sandbox.linux.HasField("process"):
            count = sandbox.linux.process.process_count.value
            pod["process_stats"] = {"process_count": count}
        return pod

    def _add_cgroup(self, pod: Json, uid: str, usage: CgroupUsage) -> None:
        """Set what the whole pod uses, the runtime's own processes included."""
        now = self._context.clock.now()
        stamp, at_ns = format_time(now), int(now.timestamp() * _NANO)
        rate = self._rates.rate(uid, at_ns, usage.cpu_ns)
        pod["cpu"] = _present(time=stamp, usageNanoCores=rate, usageCoreNanoSeconds=usage.cpu_ns)
        pod["memory"] |= {
            "time": stamp,
            "workingSetBytes": usage.working_set_bytes,
            "usageBytes": usage.memory_bytes,
        }

    def _container(self, stats: pb.ContainerStats) -> Json:
        cpu, memory = stats.cpu, stats.memory
        total_ns = cpu.usage_core_nano_seconds.value
        rate = (
            cpu.usage_nano_cores.value
            if cpu.HasField("usage_nano_cores")
            else self._rates.rate(stats.attributes.id, cpu.timestamp, total_ns)
        )
        shown: Json = {
            "name": stats.attributes.metadata.name,
            "cpu": _present(
                time=_stamp(cpu.timestamp), usageNanoCores=rate, usageCoreNanoSeconds=total_ns
            ),
            "memory": _present(
                time=_stamp(memory.timestamp),
                workingSetBytes=memory.working_set_bytes.value,
                availableBytes=_value(memory, "available_bytes"),
                usageBytes=_value(memory, "usage_bytes"),
                rssBytes=_value(memory, "rss_bytes"),
                pageFaults=_value(memory, "page_faults"),
                majorPageFaults=_value(memory, "major_page_faults"),
            ),
        }
        if stats.HasField("writable_layer"):
            layer = stats.writable_layer
            shown["rootfs"] = {
                "time": _stamp(layer.timestamp),
                "usedBytes": layer.used_bytes.value,
                "inodesUsed": layer.inodes_used.value,
            }
        return shown


def sandboxes_of(stats: Iterable[pb.PodSandboxStats]) -> dict[str, list[str]]:
    """Return the IDs of the sandboxes of each pod, by UID."""
    sandboxes: dict[str, list[str]] = {}
    for sandbox in stats:
        attributes = sandbox.attributes
        sandboxes.setdefault(attributes.metadata.uid, []).append(attributes.id)
    return sandboxes


def resource_text(summary: Mapping[str, Any]) -> str:
    """Return the resource metrics of a summary, as Prometheus text."""
    node = summary["node"]
    samples: dict[str, list[str]] = {name: [] for name in _RESOURCE_METRICS}
    _add_samples(samples, "node", (), node)
    for pod in summary["pods"]:
        ref = pod["podRef"]
        labels = (("namespace", ref["namespace"]), ("pod", ref["name"]))
        _add_samples(samples, "pod", labels, pod)
        for container in pod["containers"]:
            _add_samples(
                samples, "container", (("container", container["name"]), *labels), container
            )
    samples["resource_scrape_error"].append(sample_line("resource_scrape_error", (), 0))
    return exposition_text(
        line
        for name, (help_, kind) in _RESOURCE_METRICS.items()
        for line in family_lines(name, help_, kind, samples[name])
    )


_RESOURCE_METRICS = {
    "container_cpu_usage_seconds_total": ("CPU time the container used, in seconds", "counter"),
    "container_memory_working_set_bytes": ("Working set of the container, in bytes", "gauge"),
    "node_cpu_usage_seconds_total": ("CPU time the node used, in seconds", "counter"),
    "node_memory_working_set_bytes": ("Working set of the node, in bytes", "gauge"),
    "pod_cpu_usage_seconds_total": ("CPU time the pod used, in seconds", "counter"),
    "pod_memory_working_set_bytes": ("Working set of the pod, in bytes", "gauge"),
    "resource_scrape_error": ("1 if there was an error while getting metrics", "gauge"),
}


def _add_samples(
    samples: dict[str, list[str]], subject: str, labels: Labels, usage: Mapping[str, Any]
) -> None:
    cpu, memory = usage.get("cpu", {}), usage.get("memory", {})
    if "usageCoreNanoSeconds" in cpu:
        name, seconds = f"{subject}_cpu_usage_seconds_total", cpu["usageCoreNanoSeconds"] / _NANO
        samples[name].append(sample_line(name, labels, seconds))
    if "workingSetBytes" in memory:
        name = f"{subject}_memory_working_set_bytes"
        samples[name].append(sample_line(name, labels, memory["workingSetBytes"]))


def _sum(containers: Iterable[Json], part: str, fields: Iterable[str]) -> Json:
    usage: Json = {}
    for container in containers:
        values = container.get(part, {})
        usage.setdefault("time", values.get("time"))
        for field in fields:
            if field in values:
                usage[field] = usage.get(field, 0) + values[field]
    return usage


def _network(usage: pb.NetworkUsage) -> Json:
    default = usage.default_interface
    return {
        "time": _stamp(usage.timestamp),
        **_interface(default),
        "interfaces": [_interface(interface) for interface in (default, *usage.interfaces)],
    }


def _interface(usage: pb.NetworkInterfaceUsage) -> Json:
    return {
        "name": usage.name,
        "rxBytes": usage.rx_bytes.value,
        "rxErrors": usage.rx_errors.value,
        "txBytes": usage.tx_bytes.value,
        "txErrors": usage.tx_errors.value,
    }


def _file_system(path: Path, stamp: str) -> Json:
    status = os.statvfs(path)
    total, free = status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    return {
        "time": stamp,
        "availableBytes": free,
        "capacityBytes": total,
        "usedBytes": total - status.f_bfree * status.f_frsize,
        "inodesFree": status.f_ffree,
        "inodes": status.f_files,
        "inodesUsed": status.f_files - status.f_ffree,
    }


def _value(message: Any, field: str) -> int | None:
    return int(getattr(message, field).value) if message.HasField(field) else None


def _stamp(nanoseconds: int) -> str:
    return format_time(datetime.fromtimestamp(nanoseconds // _NANO, UTC))


def _present(**values: Any) -> Json:
    return {name: value for name, value in values.items() if value is not None}
