"""Options of a measurement, and the shapes of probe pods that follow from them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from moorage.runtimeclass.overhead_estimates import (
    DEFAULT_CONFIDENCE,
    DEFAULT_PERCENTILE,
    MEBIBYTE,
    Activity,
)
from moorage.runtimes.overhead.errors import MeasurementError

MOST_PODS = 1000
"""Pods of one measurement; each has its readings in the report."""


class Shape(msgspec.Struct, frozen=True):
    """Size of a probe pod: its containers, and the memory that each of them holds."""

    containers: int
    payload_bytes: int

    @property
    def total_payload_bytes(self) -> int:
        return self.containers * self.payload_bytes


class MeasureOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a measurement. Durations are in seconds.

    `samples` is the number of pods of each shape and activity, `parallel` how many of them run at
    once. `runtime_class` is the class whose scheduling rules are used, empty for the handler's.
    Pods have `containers` containers, and `further_containers` more to see how overhead grows;
    likewise without and with `payload_bytes` in each. A pod is read `readings` times within
    `window_s`, after it has run for `settle_s`.
    """

    handler: str
    runtime_class: str = ""
    namespace: str = "default"
    image: str = "moorage.local/busybox:1"
    node: str = ""
    samples: int = 5
    parallel: int = 2
    containers: int = 1
    further_containers: int = 1
    payload_bytes: int = 16 * MEBIBYTE
    percentile: float = DEFAULT_PERCENTILE
    confidence: float = DEFAULT_CONFIDENCE
    settle_s: float = 2.0
    window_s: float = 10.0
    readings: int = 5
    start_timeout_s: float = 60.0

    def check(self) -> None:
        """Raise MeasurementError for options that make no measurement."""
        wrong = (
            (self.samples < 1, "samples must be at least 1"),
            (self.parallel < 1, "parallel must be at least 1"),
            (not 1 <= self.containers <= 16, "containers must be between 1 and 16"),
            (not 0 <= self.further_containers <= 16, "further containers must be at most 16"),
            (not 0 <= self.payload_bytes <= 1 << 34, "payload must be between 0 and 16Gi"),
            (not 0 <= self.percentile <= 100, "percentile must be between 0 and 100"),
            (not 0 < self.confidence < 1, "confidence must be between 0 and 1"),
            (not 0 <= self.settle_s <= 600, "settle must be between 0 and 600 s"),
            (not 0.1 <= self.window_s <= 3600, "window must be between 0.1 and 3600 s"),
            (not 2 <= self.readings <= 1000, "readings must be between 2 and 1000"),
            (self.pods > MOST_PODS, f"{self.pods} probe pods are more than {MOST_PODS}"),
        )
        for is_wrong, sentence in wrong:
            if is_wrong:
                raise MeasurementError(sentence)

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Return the sizes of pods that are measured, each once."""
        wanted = [Shape(self.containers, 0)]
        if self.further_containers:
            wanted.append(Shape(self.containers + self.further_containers, 0))
        if self.payload_bytes:
            wanted.append(Shape(self.containers, self.payload_bytes))
        return tuple(wanted)

    @property
    def pods(self) -> int:
        """Return the number of probe pods."""
        return self.samples * len(self.shapes) * len(Activity)

    def rounds(self) -> Iterator[tuple[Shape, Activity]]:
        """Yield shape and activity of each pod; every round has all of them.

        So a machine that becomes busier changes all shapes alike.
        """
        for _ in range(self.samples):
            for shape in self.shapes:
                for activity in Activity:
                    yield shape, activity
