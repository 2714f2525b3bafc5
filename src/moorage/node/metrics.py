"""Agent metrics in the Prometheus text format.

Only counters, gauges and histograms with labels, the types used here; a client library would add a
registry, collectors and a process model that are not needed. Names are the kubelet's. Source:
Prometheus text exposition format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = tuple[str, ...]


def sample_text(value: float) -> str:
    """Return a sample's value as the shortest text that reads back as the same number.

    Byte counts and seconds of CPU need every digit: rates are differences of them.
    """
    return repr(float(value)).removesuffix(".0")


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
            yield f"{self.name}{_braced(self._labels, key)} {sample_text(value)}"


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
        names = (*self._labels, "le")
        for key, counts in self._counts.items():
            total = 0
            for bound, count in zip((*_SECONDS, float("inf")), counts, strict=True):
                total += count
                shown = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield f"{self.name}_bucket{_braced(names, (*key, shown))} {total}"
            braced = _braced(self._labels, key)
            yield f"{self.name}_sum{braced} {sample_text(self._sums[key])}"
            yield f"{self.name}_count{braced} {total}"


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
        lines: list[str] = []
        for metric in vars(self).values():
            if names is not None and not metric.name.startswith(tuple(names)):
                continue
            lines.append(f"# HELP {metric.name} {metric.help}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines.extend(metric.lines())
        return "\n".join(lines) + "\n"


def _braced(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs) + "}"
