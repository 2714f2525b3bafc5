"""Options of a measurement, and the shapes of probe pods that follow from them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from moorage.api.runtime_group import RuntimeClass
from moorage.runtimeclass.class_versions import newest_version, origin_of
from moorage.runtimeclass.overhead_estimates import (
    DEFAULT_CONFIDENCE,
    DEFAULT_PERCENTILE,
    MEBIBYTE,
    Activity,
)
from moorage.runtimeclass.temporary_classes import is_temporary
from moorage.wire.client.resources import NODES, RUNTIME_CLASSES
from moorage.wire.client.rest import Client

# Errors of measured overhead.


class MeasurementError(Exception):
    """Overhead could not be measured, applied or drawn; the text says why and what to do."""


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


# Class of a measurement: the one whose scheduling rules and declared overhead count.


async def check_handler(client: Client, options: MeasureOptions) -> None:
    """Check that a node has the handler, before pods wait for one.

    Nodes that report no handlers at all, as kubelets of old engines, may have it. Raises
    MeasurementError, StatusError, UnreachableError.
    """
    nodes = [
        node
        for node in (await client.list(NODES)).items
        if options.node in ("", node.metadata.name)
    ]
    reported = [{one.name for one in node.status.runtime_handlers} for node in nodes]
    if any(not names or options.handler in names for names in reported):
        return
    where = f"node {options.node}" if options.node else "any node"
    names = sorted(filter(None, set().union(*reported)))
    raise MeasurementError(
        f"there is no handler {options.handler} on {where}; handlers that nodes report: "
        f"{', '.join(names) or 'none'}"
    )


async def find_class(client: Client, options: MeasureOptions) -> RuntimeClass | None:
    """Return the class that the options name, or the only one of the handler; None without one.

    Of several versions of one class the newest counts. Raises MeasurementError when the class has
    another handler, or several classes have the handler; StatusError, UnreachableError.
    """
    if options.runtime_class:
        runtime_class = await client.get(RUNTIME_CLASSES, options.runtime_class)
        if runtime_class.handler != options.handler:
            raise MeasurementError(
                f"class {options.runtime_class} has the handler {runtime_class.handler}, not "
                f"{options.handler}"
            )
        return runtime_class
    classes = [
        one
        for one in (await client.list(RUNTIME_CLASSES)).items
        if one.handler == options.handler
        and not is_temporary(one.metadata.name, one.metadata.labels)
    ]
    origins = sorted({origin_of(one.metadata) for one in classes})
    if len(origins) > 1 and options.handler in origins:
        # The class that has the handler's name is the one that discovery creates.
        origins = [options.handler]
    if len(origins) > 1:
        raise MeasurementError(
            f"several classes have the handler {options.handler}: {', '.join(origins)}; choose one "
            "with --class"
        )
    if not origins:
        return None
    newest = newest_version(origins[0], [one.metadata for one in classes])
    return next(one for one in classes if one.metadata.name == newest)
