"""Agent metrics, under the kubelet's names where the meaning is the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from moorage.wire.metrics import Counter, Family, Gauge, Histogram, exposition
from moorage.wire.metrics.families import LabelBudget, exponential

_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
_OPERATIONS = {"update_container_resources": "update_container"}


class Metrics:
    """All metrics of a node agent."""

    def __init__(self) -> None:
        self._classes = LabelBudget()
        self.run_sandbox = Histogram(
            "kubelet_run_podsandbox_duration_seconds",
            "Duration in seconds of the run_podsandbox operations, by handler.",
            ["runtime_handler"],
        )
        self.run_sandbox_errors = Counter(
            "kubelet_run_podsandbox_errors_total",
            "Cumulative number of the run_podsandbox operation errors, by handler.",
            ["runtime_handler"],
        )
        self.started_pods = Counter(
            "kubelet_started_pods_total", "Cumulative number of pods started"
        )
        self.started_pods_errors = Counter(
            "kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods"
        )
        self.started_containers = Counter(
            "kubelet_started_containers_total",
            "Cumulative number of containers started",
            ["container_type"],
        )
        self.started_containers_errors = Counter(
            "kubelet_started_containers_errors_total",
            "Cumulative number of errors when starting containers",
            ["container_type", "code"],
        )
        self.pod_start = Histogram(
            "kubelet_pod_start_duration_seconds",
            "Duration in seconds from seeing a pod for the first time to it running.",
        )
        self.start_phases = Histogram(
            "kubelet_pod_start_phase_duration_seconds",
            "Duration in seconds of a phase of pods' starts, by class and handler. Broken down by "
            "phase.",
            ["phase", "runtime_class", "runtime_handler"],
            exponential(0.001, 2, 18),
        )
        self.running_pods = Gauge(
            "kubelet_running_pods", "Number of pods that have a running pod sandbox"
        )
        self.running_containers = Gauge(
            "kubelet_running_containers",
            "Number of containers currently known, by state",
            ["container_state"],
        )
        self.evictions = Counter(
            "kubelet_evictions", "Cumulative number of pod evictions by signal",
            ["eviction_signal"],
        )  # fmt: skip
        self.shutdown_start = Gauge(
            "kubelet_graceful_shutdown_start_time_seconds",
            "Last graceful shutdown start time since unix epoch in seconds",
        )
        self.shutdown_end = Gauge(
            "kubelet_graceful_shutdown_end_time_seconds",
            "Last graceful shutdown end time since unix epoch in seconds",
        )
        self.runtime_operations = Counter(
            "kubelet_runtime_operations_total",
            "Cumulative number of runtime operations by operation type.",
            ["operation_type"],
        )
        self.runtime_durations = Histogram(
            "kubelet_runtime_operations_duration_seconds",
            "Duration in seconds of runtime operations. Broken down by operation type.",
            ["operation_type"],
            exponential(0.005, 2.5, 14),
        )
        self.runtime_errors = Counter(
            "kubelet_runtime_operations_errors_total",
            "Cumulative number of runtime operation errors by operation type.",
            ["operation_type"],
        )
        self.probes = Counter(
            "prober_probe_total",
            "Cumulative number of liveness, readiness or startup probes by result.",
            ["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
        )

    def count_start(
        self, runtime_class: str, handler: str, milliseconds: Mapping[str, float]
    ) -> None:
        """Count the phases of a pod's start. Beyond 100 classes and handlers, all are `other`."""
        labels = self._classes.of(runtime_class, handler)
        for phase, ms in milliseconds.items():
            self.start_phases.series((phase, *labels)).observe(ms / 1000)

    def count_call(self, rpc: str, seconds: float, has_failed: bool) -> None:
        """Count a call to the engine, by the RPC's name."""
        operation = _operation(rpc)
        self.runtime_operations.count(operation_type=operation)
        self.runtime_durations.observe(seconds, operation_type=operation)
        if has_failed:
            self.runtime_errors.count(operation_type=operation)

    def text(self, names: Sequence[str] | None = None) -> str:
        """Return the exposition of all metrics, or of those with these name prefixes."""
        families: list[Family] = [
            family for name, family in vars(self).items() if not name.startswith("_")
        ]
        return exposition(
            family for family in families if names is None or family.name.startswith(tuple(names))
        )


def _operation(rpc: str) -> str:
    """Return the kubelet's name of an RPC: `RunPodSandbox` is `run_podsandbox`."""
    name = _WORD.sub("_", rpc.replace("PodSandbox", "Podsandbox")).lower()
    return _OPERATIONS.get(name, name)
