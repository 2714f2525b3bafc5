"""Scheduler metrics, under kube-scheduler's names.

Source: `pkg/scheduler/metrics` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from moorage.runtimeclass.start_phases import SCHEDULE
from moorage.wire.metrics import Counter, Family, Gauge, Histogram
from moorage.wire.metrics.families import LabelBudget, exponential

SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
"""Results of an attempt."""

_LABELS = ("profile", "result")


class SchedulerMetrics:
    """The metrics of one scheduler. `profile` is its name."""

    def __init__(self, profile: str) -> None:
        self._profile = profile
        self._pending: Callable[[], Mapping[str, int]] = dict
        self._attempts = Counter(
            "scheduler_schedule_attempts_total",
            "Number of attempts to schedule pods, by the result.",
            _LABELS,
        )
        self._durations = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            _LABELS,
            exponential(0.001, 2, 20),
        )
        self._classes = LabelBudget()
        self._starts = Histogram(
            "scheduler_pod_start_phase_duration_seconds",
            "Duration in seconds of a phase of pods' starts, by class and handler. The scheduler "
            "has one: from seeing the pod first to seeing it bound, all attempts together.",
            ["phase", "runtime_class", "runtime_handler"],
            exponential(0.001, 2, 18),
        )
        self._pods = Gauge(
            "scheduler_pending_pods", "Number of pending pods, by the queue type.", ["queue"]
        )

    def attempted(self, result: str, seconds: float) -> None:
        """Count an attempt to place a pod; of one that was placed, up to its binding.

        Hot path: 1 µs a decision.
        """
        self._durations.observe(seconds, profile=self._profile, result=result)

    def scheduled(self, runtime_class: str, handler: str, seconds: float) -> None:
        """Count a pod that was bound. Beyond 100 classes and handlers, all are `other`.

        Hot path: 1 µs a pod.
        """
        labels = self._classes.of(runtime_class, handler)
        self._starts.series((SCHEDULE, *labels)).observe(seconds)

    def follow(self, pending: Callable[[], Mapping[str, int]]) -> None:
        """Read the number of waiting pods, by kind of queue, from a function from now on."""
        self._pending = pending

    def families(self) -> Iterator[Family]:
        """Yield the families, with what is true now."""
        for (profile, result), count in self._durations.totals().items():
            self._attempts.set(count, profile=profile, result=result)
        for queue, count in self._pending().items():
            self._pods.set(count, queue=queue)
        yield from (self._attempts, self._durations, self._starts, self._pods)
