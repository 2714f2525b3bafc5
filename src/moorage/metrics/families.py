"""Metric families: counters, gauges and histograms with labels.

Small classes without locks: each part has one event loop. `exposition` writes them;
docs/decisions/070-prometheus-text.md has the comparison with a client library.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from moorage.metrics.exposition import exposition_text, family_lines, sample_line

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bounds of durations, as client libraries have them by default."""

Labels = tuple[str, ...]


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
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, seconds: float, **labels: str) -> None:
        """Add a duration in seconds."""
        key = tuple(labels[name] for name in self._labels)
        counts = self._counts.setdefault(key, [0] * (len(self._bounds) + 1))
        counts[bisect_left(self._bounds, seconds)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + seconds

    def totals(self) -> dict[Labels, int]:
        """Return the number of durations by the values of the labels."""
        return {key: sum(counts) for key, counts in self._counts.items()}

    def lines(self) -> Iterator[str]:
        """Yield the exposition lines."""
        for key, counts in self._counts.items():
            labels = tuple(zip(self._labels, key, strict=True))
            total = 0
            for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
                total += count
                shown = "+Inf" if bound == float("inf") else f"{bound:g}"
                yield sample_line(f"{self.name}_bucket", (*labels, ("le", shown)), total)
            yield sample_line(f"{self.name}_sum", labels, self._sums[key])
            yield sample_line(f"{self.name}_count", labels, total)


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
