"""Metric families: counters, gauges and histograms with labels.

Small classes without locks: each part has one event loop. `exposition` writes them;
docs/decisions/087-metrics-of-parts.md has the comparison with a client library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from moorage.wire.metrics.exposition import exposition_text, family_lines, sample_line

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of durations, as client libraries have them by default."""

Labels = tuple[str, ...]
_V = TypeVar("_V")


class Family(Protocol):
    """A metric family: its name, help and type, and its samples."""

    @property
    def name(self) -> str: ...

    @property
    def help(self) -> str: ...

    @property
    def kind(self) -> str: ...

    def lines(self) -> Iterator[str]:
        """Yield the exposition lines."""


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

    def increment(self, values: Labels, amount: float = 1.0) -> None:
        """Add to the series with these values of the labels, in their order. For hot paths."""
        self._values[values] = self._values.get(values, 0.0) + amount

    def set(self, value: float, **labels: str) -> None:
        """Set the series with these labels."""
        self._values[tuple(labels[name] for name in self._labels)] = value

    def forget(self, **labels: str) -> None:
        """Remove every series with these labels."""
        self._values = _without(self._values, self._labels, labels)

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


class HistogramSeries:
    """One series of a histogram: the number of durations in each bucket, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Add a duration in seconds."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds


class Histogram:
    """Durations in seconds, by labels. `bounds` are those of the buckets, in ascending order."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        help_: str,
        labels: Sequence[str] = (),
        bounds: Sequence[float] = SECONDS,
    ) -> None:
        self.name = name
        self.help = help_
        self._labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._series: dict[Labels, HistogramSeries] = {}

    def observe(self, seconds: float, **labels: str) -> None:
        """Add a duration in seconds."""
        self.series(tuple(labels[name] for name in self._labels)).observe(seconds)

    def series(self, values: Labels) -> HistogramSeries:
        """Return the series with these values of the labels, in their order. For hot paths."""
        series = self._series.get(values)
        if series is None:
            series = self._series[values] = HistogramSeries(self._bounds)
        return series

    def forget(self, **labels: str) -> None:
        """Remove every series with these labels."""
        self._series = _without(self._series, self._labels, labels)

    def totals(self) -> dict[Labels, int]:
        """Return the number of durations by the values of the labels."""
        return {key: sum(series.counts) for key, series in self._series.items()}

    def lines(self) -> Iterator[str]:
        """Yield the exposition lines."""
        for key, series in self._series.items():
            labels = tuple(zip(self._labels, key, strict=True))
            total = 0
            for bound, count in zip((*self._bounds, float("inf")), series.counts, strict=True):
                total += count
                shown = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield sample_line(f"{self.name}_bucket", (*labels, ("le", shown)), total)
            yield sample_line(f"{self.name}_sum", labels, series.sum)
            yield sample_line(f"{self.name}_count", labels, total)


def _without(
    series: dict[Labels, _V], names: tuple[str, ...], labels: Mapping[str, str]
) -> dict[Labels, _V]:
    """Return series without those that have all of these labels."""
    wanted = [(names.index(name), value) for name, value in labels.items()]
    return {
        key: value
        for key, value in series.items()
        if any(key[index] != wanted_value for index, wanted_value in wanted)
    }


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Return bounds of which each is `factor` times the one before."""
    return tuple(first * factor**power for power in range(count))


def exposition(families: Iterable[Family]) -> str:
    """Return families as a response body."""
    return exposition_text(
        line
        for family in families
        for line in family_lines(family.name, family.help, family.kind, family.lines())
    )


# Label budget: a bound on the number of series that users' names can create.

OTHER = "other"
"""Value of the labels of everything beyond the budget."""


class LabelBudget:
    """The first `limit` combinations of label values; all later ones are `other`."""

    def __init__(self, limit: int = 100) -> None:
        self._limit = limit
        self._known: set[Labels] = set()

    def of(self, *values: str) -> Labels:
        """Return the values, or OTHER in place of each when the budget is used up."""
        if values not in self._known:
            if len(self._known) >= self._limit:
                return (OTHER,) * len(values)
            self._known.add(values)
        return values
