"""Way of a pod: its class, its steps with their times, and what was said about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moorage.api.pods import ContainerStatus, Pod
from moorage.api.runtime_classes import RuntimeClass
from moorage.api.runtime_group import CHOICE_ANNOTATION, CHOICE_REASON_ANNOTATION
from moorage.apiserver.web_page.objects import EventRow, small_event
from moorage.runtimeclass.start_phases import CONDITION_RESOLUTION_MS, StartPhases, phases_of

_MOST_EVENTS = 50


class Step(msgspec.Struct, frozen=True):
    """A step of a pod's start: its milliseconds, and its part of the whole in percent.

    `percent` is None for a step known to a whole second beside others that a node agent measured.
    """

    name: str
    ms: float
    resolution_ms: float
    percent: float | None


class ContainerRow(msgspec.Struct, frozen=True):
    """A container: its state in words."""

    name: str
    image: str
    state: str
    restarts: int


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """What the page of a pod shows. `on_node_ms` is None where no node agent measured the start."""

    pod: Pod
    handler: str
    choice: str
    reason: str
    steps: tuple[Step, ...]
    total_ms: float | None
    on_node_ms: float | None
    containers: tuple[ContainerRow, ...]
    events: tuple[EventRow, ...]


class LatestEvents:
    """Keeps the latest events of those that are read."""

    def __init__(self) -> None:
        self._events: list[EventRow] = []

    def add(self, event: EventRow) -> None:
        """Keep an event, until later ones take its place."""
        self._events.append(small_event(event))
        if len(self._events) >= 2 * _MOST_EVENTS:
            self._events = list(self.all())

    def all(self) -> tuple[EventRow, ...]:
        """Return the latest events, the last one at the end."""
        return tuple(sorted(self._events, key=lambda event: event.seen_at)[-_MOST_EVENTS:])


def pod_view(pod: Pod, runtime_class: RuntimeClass | None, events: Iterable[EventRow]) -> PodView:
    """Return the page of a pod; the events are the latest about it."""
    phases = phases_of(pod)
    annotations = pod.metadata.annotations
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return PodView(
        pod=pod,
        handler="" if runtime_class is None else runtime_class.handler,
        choice=annotations.get(CHOICE_ANNOTATION, ""),
        reason=annotations.get(CHOICE_REASON_ANNOTATION, ""),
        steps=_steps(phases),
        total_ms=None if phases is None else phases.total_ms,
        on_node_ms=None if phases is None else phases.on_node_ms,
        containers=tuple(map(_container, statuses)),
        events=tuple(events),
    )


def _steps(phases: StartPhases | None) -> tuple[Step, ...]:
    if phases is None:
        return ()
    on_node_ms = phases.on_node_ms
    whole_ms = (phases.total_ms if on_node_ms is None else on_node_ms) or 1.0
    return tuple(
        Step(
            phase.name,
            phase.ms,
            phase.resolution_ms,
            None
            if on_node_ms is not None and phase.resolution_ms >= CONDITION_RESOLUTION_MS
            else round(100 * phase.ms / whole_ms, 1),
        )
        for phase in phases.phases
    )


def _container(status: ContainerStatus) -> ContainerRow:
    state = status.state
    if state.waiting is not None:
        words = f"waiting: {state.waiting.reason}" if state.waiting.reason else "waiting"
    elif state.terminated is not None:
        ended = state.terminated
        words = f"ended: {ended.reason or 'unknown'}, exit code {ended.exit_code}"
    else:
        words = "waiting" if state.running is None else "running"
    return ContainerRow(status.name, status.image, words, status.restart_count)
