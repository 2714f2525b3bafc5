"""Overhead drift: warns when pods of a class cost more or less than it declares."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from moorage.api.clock import Clock
from moorage.api.errors import StatusError
from moorage.api.logs import Log
from moorage.api.quantity import parse
from moorage.api.runtime_group import ISOLATION_LABEL, RuntimeClass, RuntimeProfile
from moorage.controllers.informers import Informers
from moorage.controllers.loop import After, Loop
from moorage.controllers.objects import Pod
from moorage.runtimeclass.isolation import LEVELS, Isolation
from moorage.runtimeclass.overhead import (
    Bounds,
    Drift,
    DriftState,
    PodCost,
    Tolerance,
    judge,
    median_bounds,
    observe,
    overhead_bounds,
)
from moorage.runtimeclass.overhead_estimates import MEBIBYTE
from moorage.wire.client.informer import Informer
from moorage.wire.client.node_summary import PodFigures, SummaryError, read_node_summary
from moorage.wire.client.recorder import NORMAL, WARNING, EventRecorder, reference
from moorage.wire.client.resources import RUNTIME_CLASSES
from moorage.wire.client.rest import Client, UnreachableError
from moorage.wire.metrics import Family
from moorage.wire.metrics.families import Gauge

# Metrics of overhead: what classes declare, what their pods cost, and the verdict.


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


# Controller of overhead drift: compares what classes declare with their nodes' statistics.
#
# Once a minute it reads the summaries of nodes with pods of classes, some nodes at a time, and
# judges each class by the median of its pods. A verdict that has held for some minutes is an
# event on the class, once; another one follows only after another verdict. Nothing is changed:
# what to declare is the user's decision, and `moor overhead measure` proposes it.

DRIFT, FITS = "OverheadDrift", "OverheadFits"

_INTERVAL_S = 60.0
_NODES_AT_A_TIME = 20
_SUMMARY_S = 15.0
_KEY = ""

log = Log(__name__)


class _Watched(msgspec.Struct, frozen=True):
    """What is remembered of a class: its state, for the overhead that it declared then."""

    declared_bytes: int
    state: DriftState = DriftState()


class OverheadDriftController:
    """Judges all classes once a minute. Its only writes are events."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        profiles: Informer[RuntimeProfile],
        recorder: EventRecorder,
        clock: Clock,
        *,
        metrics: OverheadMetrics | None = None,
        tolerance: Tolerance | None = None,
    ) -> None:
        self._client = client
        self._pods = informers.pods
        self._classes = informers.runtime_classes
        self._profiles = profiles
        self._recorder = recorder
        self._metrics = metrics or OverheadMetrics()
        self._tolerance = tolerance or Tolerance()
        self._watched: dict[str, _Watched] = {}
        self._last_node = ""
        self.run = Loop(
            "overhead drift",
            self._reconcile,
            [(self._pods, None), (self._classes, None), (self._profiles, None)],
            clock,
            first=[After(_KEY, _INTERVAL_S)],
        ).run

    async def _reconcile(self, key: str) -> float:
        del key
        classes = {one.metadata.name: one for one in self._classes}
        for name in self._watched.keys() - classes.keys():
            del self._watched[name]
            self._metrics.forget(name)
        pods = [pod for pod in self._pods if _is_measurable(pod, classes)]
        figures = await self._figures(sorted({pod.spec.node_name for pod in pods}))
        if figures:
            levels = self._profile_levels()
            costs: dict[str, list[Bounds]] = {}
            for pod in pods:
                place = pod.spec.node_name, pod.metadata.uid
                if (cost := _cost(figures.get(place))) is not None:
                    runtime_class = classes[pod.spec.runtime_class_name or ""]
                    level = _level(runtime_class, pod.spec.node_name, levels)
                    costs.setdefault(runtime_class.metadata.name, []).append(
                        overhead_bounds(cost, level)
                    )
            for name, bounds in sorted(costs.items()):
                self._judge(classes[name], bounds)
        return _INTERVAL_S

    def _judge(self, runtime_class: RuntimeClass, bounds: list[Bounds]) -> None:
        name, declared = runtime_class.metadata.name, declared_bytes(runtime_class)
        before = self._watched.get(name)
        if before is None or before.declared_bytes != declared:
            before = _Watched(declared)
        measured = median_bounds(bounds)
        seen = judge(declared, measured, self._tolerance)
        after = observe(before.state, seen, self._tolerance)
        self._watched[name] = _Watched(declared, after)
        self._metrics.note(name, declared, measured, after.verdict)
        if after.verdict is before.state.verdict:
            return
        about = reference(RUNTIME_CLASSES, runtime_class)
        if after.verdict is not Drift.FITS:
            message = drift_message(runtime_class, measured, after.verdict, len(bounds))
            self._recorder.record(about, WARNING, DRIFT, message)
        elif before.state.verdict is not Drift.UNKNOWN:
            message = f"pods cost what the class declares again: {_mebibytes(declared)}"
            self._recorder.record(about, NORMAL, FITS, message)

    async def _figures(self, nodes: list[str]) -> dict[tuple[str, str], PodFigures]:
        """Return the figures of pods by node and uid, of the next nodes in turn.

        What a node says of a pod that runs elsewhere counts for nothing.
        """
        later = [node for node in nodes if node > self._last_node]
        chosen = (later + [node for node in nodes if node <= self._last_node])[:_NODES_AT_A_TIME]
        if chosen:
            self._last_node = chosen[-1]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._summary(node)) for node in chosen]
        return {
            (node, uid): figures
            for node, task in zip(chosen, tasks, strict=True)
            for uid, figures in task.result().items()
        }

    async def _summary(self, node: str) -> Mapping[str, PodFigures]:
        try:
            async with asyncio.timeout(_SUMMARY_S):
                return await read_node_summary(self._client, node)
        except (StatusError, UnreachableError, SummaryError, TimeoutError) as error:
            log.debug("summary of a node not read", node=node, reason=error)
            return {}

    def _profile_levels(self) -> Mapping[tuple[str, str], str]:
        """Return the isolation level of each node's handler, as its profile has it."""
        return {
            (one.spec.node_name, one.spec.handler): one.status.isolation for one in self._profiles
        }


def declared_bytes(runtime_class: RuntimeClass) -> int:
    """Return the memory that a class declares as overhead, in bytes; 0 without any."""
    amounts = runtime_class.overhead.pod_fixed if runtime_class.overhead is not None else {}
    return parse(amounts.get("memory", "0")).value


def drift_message(runtime_class: RuntimeClass, measured: Bounds, verdict: Drift, pods: int) -> str:
    """Return the message of an event about drift: figures, and what to do."""
    known = measured.lower if verdict is Drift.TOO_LOW else measured.upper
    bound = "at least" if verdict is Drift.TOO_LOW else "at most"
    exact = measured.lower == measured.upper
    return (
        f"declared overhead is {_mebibytes(declared_bytes(runtime_class))} of memory, but "
        f"{'one pod costs' if pods == 1 else f'the median of {pods} pods costs'} "
        f"{'' if exact else f'{bound} '}{_mebibytes(known)}; measure it with "
        f"`moor overhead measure {runtime_class.handler}`"
    )


def _mebibytes(amount_bytes: int) -> str:
    return f"{amount_bytes / MEBIBYTE:.1f} MiB"


def _is_measurable(pod: Pod, classes: Mapping[str, RuntimeClass]) -> bool:
    return (
        (pod.spec.runtime_class_name or "") in classes
        and bool(pod.spec.node_name)
        and pod.status.phase == "Running"
        and pod.metadata.deletion_timestamp is None
    )


def _cost(figures: PodFigures | None) -> PodCost | None:
    """Return a pod's memory, None unless its node knows the whole and each container."""
    if figures is None or figures.memory is None or figures.memory.working_set_bytes is None:
        return None
    sizes = _sizes(figures)
    if not figures.containers or None in sizes:
        return None
    return PodCost(
        pod_bytes=figures.memory.working_set_bytes,
        containers_bytes=sum(size for size in sizes if size is not None),
        anonymous_bytes=figures.memory.rss_bytes,
    )


def _sizes(figures: PodFigures) -> Iterable[int | None]:
    return [
        None if one.memory is None else one.memory.working_set_bytes
        for one in figures.containers or ()
    ]


def _level(
    runtime_class: RuntimeClass, node: str, levels: Mapping[tuple[str, str], str]
) -> Isolation | None:
    """Return the isolation level of a class on a node: by its label, else by its profile."""
    label = runtime_class.metadata.labels.get(ISOLATION_LABEL, "")
    return LEVELS.get(label or levels.get((node, runtime_class.handler), ""))
