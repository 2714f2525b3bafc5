"""Work queue metrics: how many keys wait, for how long, and how long work on them takes.

A queue registers itself when it is created inside `counting_queues`: controllers create their
queues themselves, and none has to be given its metrics. Source: client-go `util/workqueue`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from moorage.api.clock import Clock
from moorage.wire.metrics.families import Counter, Family, Gauge, Histogram, exponential

_BOUNDS = exponential(10e-9, 10, 12)
_LABELS = ("name",)


class QueueMetrics:
    """The metrics of all queues of a part."""

    def __init__(self) -> None:
        self._series: list[QueueSeries] = []
        self.depth = Gauge("workqueue_depth", "Current depth of workqueue", _LABELS)
        self.adds = Counter(
            "workqueue_adds_total", "Total number of adds handled by workqueue", _LABELS
        )
        self.waits = Histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            _LABELS,
            _BOUNDS,
        )
        self.works = Histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            _LABELS,
            _BOUNDS,
        )
        self.unfinished = Gauge(
            "workqueue_unfinished_work_seconds",
            "Seconds of work in progress, which work_duration does not count yet.",
            _LABELS,
        )
        self.longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Seconds for which the longest work in progress has been going on.",
            _LABELS,
        )
        self.retries = Counter(
            "workqueue_retries_total", "Total number of retries handled by workqueue", _LABELS
        )

    def series(self, name: str, clock: Clock) -> QueueSeries:
        """Return the series of a new queue. Queues of one name are shown as one."""
        series = QueueSeries(self, name, clock)
        self._series.append(series)
        return series

    def families(self) -> Iterator[Family]:
        """Yield the families, with what is true now."""
        for gauge in (self.depth, self.unfinished, self.longest):
            for series in self._series:
                gauge.set(0, name=series.name)
        for series in self._series:
            self.depth.count(len(series.waiting), name=series.name)
            running_s = series.running_s()
            self.unfinished.count(sum(running_s), name=series.name)
            longest_s = max((*running_s, self.longest.value(name=series.name)))
            self.longest.set(longest_s, name=series.name)
        yield from (
            self.depth, self.adds, self.waits, self.works, self.unfinished, self.longest,
            self.retries,
        )  # fmt: skip


class QueueSeries:
    """The series of one queue, which says what becomes of its keys."""

    def __init__(self, metrics: QueueMetrics, name: str, clock: Clock) -> None:
        self.name = name
        self._metrics = metrics
        self._clock = clock
        self.waiting: dict[Hashable, float] = {}
        self._running: dict[Hashable, float] = {}
        metrics.adds.count(0, name=name)
        metrics.retries.count(0, name=name)

    def added(self, key: Hashable) -> None:
        """Count a key that was not waiting yet."""
        self._metrics.adds.count(name=self.name)
        self.waiting[key] = self._clock.monotonic()

    def began(self, key: Hashable) -> None:
        """Count the begin of work on a key."""
        now_s = self._clock.monotonic()
        self._metrics.waits.observe(now_s - self.waiting.pop(key, now_s), name=self.name)
        self._running[key] = now_s

    def ended(self, key: Hashable) -> None:
        """Count the end of work on a key."""
        now_s = self._clock.monotonic()
        self._metrics.works.observe(now_s - self._running.pop(key, now_s), name=self.name)

    def retried(self) -> None:
        """Count a key that is to be worked on again after a failure."""
        self._metrics.retries.count(name=self.name)

    def running_s(self) -> list[float]:
        """Return for how long each key is being worked on."""
        now_s = self._clock.monotonic()
        return [now_s - began_s for began_s in self._running.values()]


_counting: ContextVar[QueueMetrics | None] = ContextVar("queue metrics", default=None)


@contextmanager
def counting_queues(metrics: QueueMetrics) -> Iterator[None]:
    """Let the queues that are created inside the block, and by tasks begun in it, count there."""
    token = _counting.set(metrics)
    try:
        yield
    finally:
        _counting.reset(token)


def series_of(name: str, clock: Clock) -> QueueSeries | None:
    """Return the series of a new queue; None outside of `counting_queues`."""
    metrics = _counting.get()
    return None if metrics is None else metrics.series(name, clock)
