"""Agent metrics: counters, gauges and histograms with labels.

Names are the kubelet's. `exposition` writes them; docs/decisions/070-prometheus-text.md has the
comparison with a client library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moorage.node.exposition import exposition_text, family_lines, sample_line

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

Labels = tuple[str, ...]


class Counter:
    """Counter by labels; used as a gauge through `set`."""

    kind = "counter"

    def __init__(self, name: str, help_: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help_
        self._labels = tuple(labels)
        self._values: dict[Labels, float] = {}

    def count(self, amount: float = 1.0, **labels: str) -> None:
        """Add to the series with these labels."""
        key = tuple(labels[name] for name in self._labels)
        self._values[key] = self._values.get(key, 0.0) + amount

    def set(self, value: float, **labels: str) -> None:
        """Set the series with these labels."""
        self._values[tuple(labels[name] for name in self._labels)] = value

    def forget(self, **labels: str) -> None:
        """Remove every series with these labels."""
        wanted = [(self._labels.index(name), value) for name, value in labels.items()]
        self._values = {
            key: value
            for key, value in self._values.items()
            if any(key[index] != wanted_value for index, wanted_value in wanted)
        }

    def value(self, **labels: str) -> float:
        """Return the value of the series with these labels; 0 if it does not exist."""
        return self._values.get(tuple(labels[name] for name in self._labels), 0.0)

    def lines(self) -> Iterator[str]:
        """Yield the exposition lines."""
        for key, value in self._values.items():
            yield sample_line(self.name, zip(self._labels, key, strict=True), value)


class Gauge(Counter):
    """Value that can increase and decrease."""

    kind = "gauge"


class Histogram:
    """Durations in seconds, by labels."""

    kind = "histogram"

    def __init__(self, name: str, help_: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help_
        self._labels = tuple(labels)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, seconds: float, **labels: str) -> None:
        """Add a duration in seconds."""
        key = tuple(labels[name] for name in self._labels)
        counts = self._counts.setdefault(key, [0] * (len(_SECONDS) + 1))
        index = sum(1 for bound in _SECONDS if bound < seconds)
        counts[index] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds

    def lines(self) -> Iterator[str]:
        """Yield the exposition lines."""
        for key, counts in self._counts.items():
            labels = tuple(zip(self._labels, key, strict=True))
            total = 0
            for bound, count in zip((*_SECONDS, float("inf")), counts, strict=True):
                total += count
                shown = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield sample_line(f"{self.name}_bucket", (*labels, ("le", shown)), total)
            yield sample_line(f"{self.name}_sum", labels, self._sums[key])
            yield sample_line(f"{self.name}_count", labels, total)


class Metrics:
    """All metrics of a node agent."""

    def __init__(self) -> None:
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
        self.probes = Counter(
            "prober_probe_total",
            "Cumulative number of liveness, readiness or startup probes by result.",
            ["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
        )

    def text(self, names: Sequence[str] | None = None) -> str:
        """Return the exposition of all metrics, or of those with these name prefixes."""
        metrics: list[Counter | Histogram] = list(vars(self).values())
        return exposition_text(
            line
            for metric in metrics
            if names is None or metric.name.startswith(tuple(names))
            for line in family_lines(metric.name, metric.help, metric.kind, metric.lines())
        )
