"""Metrics of overhead: what classes declare, what their pods cost, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from moorage.runtimeclass.overhead_drift import Bounds, Drift
from moorage.wire.metrics import Family
from moorage.wire.metrics.families import Gauge


class OverheadMetrics:
    """Gauges by class; those of a class that is gone are removed."""

    def __init__(self) -> None:
        self.declared = Gauge(
            "runtime_class_overhead_declared_memory_bytes",
            "Memory that the RuntimeClass declares as overhead.podFixed.",
            ("runtime_class",),
        )
        self.measured = Gauge(
            "runtime_class_overhead_measured_memory_bytes",
            "Memory that running pods of the RuntimeClass cost beyond their containers: the "
            "median of what is certain (lower) and of what is possible (upper).",
            ("runtime_class", "bound"),
        )
        self.drift = Gauge(
            "runtime_class_overhead_drift",
            "1 for the verdict on the declared overhead: Fits, TooLow, TooHigh or Unknown.",
            ("runtime_class", "verdict"),
        )

    def families(self) -> Iterator[Family]:
        """Yield the families."""
        yield from (self.declared, self.measured, self.drift)

    def note(self, name: str, declared_bytes: int, measured: Bounds | None, verdict: Drift) -> None:
        """Set the gauges of a class."""
        self.declared.set(declared_bytes, runtime_class=name)
        self.measured.forget(runtime_class=name)
        if measured is not None:
            self.measured.set(measured.lower, runtime_class=name, bound="lower")
            self.measured.set(measured.upper, runtime_class=name, bound="upper")
        for one in Drift:
            self.drift.set(float(one is verdict), runtime_class=name, verdict=one.value)

    def forget(self, name: str) -> None:
        """Remove the gauges of a class."""
        for gauge in (self.declared, self.measured, self.drift):
            gauge.forget(runtime_class=name)
