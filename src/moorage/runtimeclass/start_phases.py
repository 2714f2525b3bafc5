"""Start phases of a pod: how long each step from its creation to its readiness took.

    created ─schedule─▶ bound ─deliver─▶ seen ─sandbox·image·create·start─▶ running ─ready─▶

Pure. The node agent drives a `PhaseMeter` and writes its result into a condition of the pod, which
only those who may write the status of pods can set; `phases_of` reads it, and falls back to the
whole seconds of the usual conditions, which every Kubernetes writes. Each moment belongs to one
phase, so that the phases sum up to the total. Source of the conditions: core/v1 `PodCondition`,
KEP-3085 (PodReadyToStartContainers). docs/decisions/114 has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import isfinite

import msgspec

from moorage.api.clock import format_micro_time, parse_time
from moorage.api.pods import ENDED_PHASES, ContainerStatus, Pod

CONDITION = "runtime.moorage.dev/StartPhases"
"""Type of the condition whose message has the phases that the node agent measured.

Its status is True once the start is over: the pod is ready, or it has ended before.
"""

ADMIT, SCHEDULE = "admit", "schedule"
"""Only the client that creates a pod can measure ADMIT: no API server keeps when a request came."""
DELIVER = "deliver"
"""From the binding until the node agent saw the pod."""
SANDBOX, VOLUMES, IMAGE, CREATE, START = "sandbox", "volumes", "image", "create", "start"
INIT, READY = "init", "ready"
CONTAINERS = "containers"
"""Image, create and start together, where only conditions show them."""
OTHER = "other"
"""Time in which no step was under way: configuration, queues, waiting."""

NODE_PHASES = (SANDBOX, VOLUMES, IMAGE, CREATE, START, INIT, READY, OTHER)
"""Phases that the node agent measures. Of those under way at once, the first one counts: it is the
one that the pod's start waits for."""

PHASES = (
    ADMIT, SCHEDULE, DELIVER,
    SANDBOX, VOLUMES, IMAGE, CREATE, START, CONTAINERS, INIT, READY, OTHER,
)  # fmt: skip
"""All phases, in the order in which they are shown."""

MEASURED_RESOLUTION_MS = 0.1
CONDITION_RESOLUTION_MS = 1000.0

_LONGEST_MESSAGE = 1024
_LONGEST_MS = 10 * 365 * 86400 * 1000.0


class Phase(msgspec.Struct, frozen=True):
    """One phase: its name, how long it took, and how exact that is, in milliseconds."""

    name: str
    ms: float
    resolution_ms: float


class StartPhases(msgspec.Struct, frozen=True, kw_only=True):
    """The phases of one pod's start, in the order of `PHASES`; they sum up to `total_ms`.

    `total_ms` counts from the pod's creation, `on_node_ms` from the moment that the node agent saw
    the pod; the latter is None where no agent measured it. `is_over` means that the pod has become
    ready, or has ended.
    """

    phases: tuple[Phase, ...]
    total_ms: float
    total_resolution_ms: float
    on_node_ms: float | None = None
    is_over: bool = False

    @property
    def is_measured(self) -> bool:
        """Return whether the node agent measured the phases on the node."""
        return self.on_node_ms is not None

    @property
    def latency_ms(self) -> float:
        """Return the most exact duration of the start: that on the node, else the total."""
        return self.total_ms if self.on_node_ms is None else self.on_node_ms

    @property
    def longest(self) -> Phase | None:
        """Return the phase that took longest; None without phases."""
        return max(self.phases, key=lambda phase: phase.ms, default=None)

    @property
    def longest_of_latency(self) -> Phase | None:
        """Return the phase that took longest of those that make up `latency_ms`; None without one.

        Those before the node agent saw the pod come from another clock, in whole seconds.
        """
        counted = (
            phase
            for phase in self.phases
            if not self.is_measured or phase.resolution_ms == MEASURED_RESOLUTION_MS
        )
        return max(counted, key=lambda phase: phase.ms, default=None)

    def ms(self, name: str) -> float | None:
        """Return how long a phase took in milliseconds; None if it is not known."""
        return next((phase.ms for phase in self.phases if phase.name == name), None)


class PhaseMeter:
    """Durations of the phases on one node, from the beginnings and ends of steps.

    `about` distinguishes steps of one phase that are under way at once: the container's name. A
    step that fails is not ended: its retries, and the pauses between them, are the same step. All
    times are seconds of one clock; one that goes back counts as standing still. Memory is bounded
    by the number of steps under way.
    """

    def __init__(self, begun_s: float) -> None:
        self._now_s = begun_s
        self._spent_s = dict.fromkeys(NODE_PHASES, 0.0)
        self._active: dict[str, set[str]] = {phase: set() for phase in NODE_PHASES}
        self._seen: set[str] = set()

    def begin(self, phase: str, now_s: float, about: str = "") -> None:
        """Begin a step, or continue one that failed."""
        self._advance(now_s)
        self._active[phase].add(about)
        self._seen.add(phase)

    def end(self, phase: str, now_s: float, about: str = "") -> None:
        """End a step. No effect if it is not under way."""
        self._advance(now_s)
        self._active[phase].discard(about)

    def end_all(self, phase: str, now_s: float) -> None:
        """End every step of a phase."""
        self._advance(now_s)
        self._active[phase].clear()

    def milliseconds(self, now_s: float) -> dict[str, float]:
        """Return the milliseconds of each phase that has begun, and of OTHER, up to now."""
        self._advance(now_s)
        return {
            phase: round(1000 * spent_s, 1)
            for phase, spent_s in self._spent_s.items()
            if phase in self._seen or phase == OTHER
        }

    def _advance(self, now_s: float) -> None:
        passed_s = now_s - self._now_s
        if passed_s <= 0:
            return
        self._now_s = now_s
        current = next((phase for phase in NODE_PHASES if self._active[phase]), OTHER)
        self._spent_s[current] += passed_s


class Measured(msgspec.Struct, frozen=True):
    """What a node agent measured: when it saw the pod first, and milliseconds by phase."""

    seen: datetime
    milliseconds: dict[str, float]


def format_measured(measured: Measured) -> str:
    """Return the text of the condition's message: a small JSON object.

    `seen` is the time at which the node agent saw the pod first; all others are milliseconds.
    """
    values = {phase: round(ms, 1) for phase, ms in measured.milliseconds.items()}
    return msgspec.json.encode({"seen": format_micro_time(measured.seen), **values}).decode()


def parse_measured(message: str) -> Measured | None:
    """Parse a condition's message; None for anything that `format_measured` does not write.

    A status can be written by others than our node agent, so nothing is taken on trust: unknown
    phases, negative and absurd durations make the whole message count as absent.
    """
    if len(message) > _LONGEST_MESSAGE:
        return None
    try:
        document = msgspec.json.decode(message, type=dict[str, str | float])
        seen = document.pop("seen", "")
        moment = parse_time(seen) if isinstance(seen, str) else None
    except (ValueError, RecursionError):
        return None
    milliseconds = {
        phase: float(ms)
        for phase, ms in document.items()
        if phase in NODE_PHASES and not isinstance(ms, str) and 0 <= ms <= _LONGEST_MS
    }
    if moment is None or not milliseconds or len(milliseconds) != len(document):
        return None
    return Measured(moment, milliseconds)


def phases_of(pod: Pod) -> StartPhases | None:
    """Return the phases of a pod's start as far as it has come; None before it is scheduled.

    Those on the node are exact to 0.1 ms where our node agent ran the pod. All others come from
    whole seconds of the API, of which each phase has up to one too many or too few. A phase whose
    end no condition shows is part of the next one. A pod whose containers were restarted says no
    more when they were started first.
    """
    created = _moment(pod.metadata.creation_timestamp)
    if created is None:
        return None
    scheduled = _since(pod, "PodScheduled")
    condition = next((one for one in pod.status.conditions if one.type == CONDITION), None)
    measured = parse_measured(condition.message) if condition is not None else None
    if condition is not None and measured is not None:
        return _with_measured(created, scheduled, measured, is_over=condition.status == "True")
    return _by_conditions(pod, created, scheduled)


def _with_measured(
    created: datetime, scheduled: datetime | None, measured: Measured, *, is_over: bool
) -> StartPhases:
    before_ms = max(_between_ms(created, measured.seen), 0.0)
    phases = []
    if scheduled is not None:
        schedule_ms = min(max(_between_ms(created, scheduled), 0.0), before_ms)
        phases.append(Phase(SCHEDULE, schedule_ms, CONDITION_RESOLUTION_MS))
        phases.append(Phase(DELIVER, before_ms - schedule_ms, CONDITION_RESOLUTION_MS))
    else:
        phases.append(Phase(DELIVER, before_ms, CONDITION_RESOLUTION_MS))
    phases += [
        Phase(name, measured.milliseconds[name], MEASURED_RESOLUTION_MS)
        for name in NODE_PHASES
        if name in measured.milliseconds
    ]
    on_node_ms = sum(measured.milliseconds.values())
    return StartPhases(
        phases=tuple(phases),
        total_ms=before_ms + on_node_ms,
        total_resolution_ms=CONDITION_RESOLUTION_MS,
        on_node_ms=on_node_ms,
        is_over=is_over,
    )


def _by_conditions(pod: Pod, created: datetime, scheduled: datetime | None) -> StartPhases | None:
    if scheduled is None:
        return None
    ready = _since(pod, "Ready")
    known = [
        (name, moment)
        for name, moment in (
            (SCHEDULE, scheduled),
            (SANDBOX, _since(pod, "PodReadyToStartContainers")),
            (INIT, _since(pod, "Initialized") if pod.spec.init_containers else None),
            (CONTAINERS, _started(pod)),
            (READY, ready),
        )
        if moment is not None
    ]
    # A later step limits an earlier one: a sandbox that was replaced has the time of its successor.
    limit = known[-1][1]
    ends: list[tuple[str, datetime]] = []
    for name, moment in reversed(known):
        limit = min(limit, moment)
        ends.insert(0, (name, limit))
    phases = []
    before = created
    for name, moment in ends:
        end = max(moment, before)
        phases.append(Phase(name, _between_ms(before, end), CONDITION_RESOLUTION_MS))
        before = end
    return StartPhases(
        phases=tuple(sorted(phases, key=lambda phase: PHASES.index(phase.name))),
        total_ms=sum(phase.ms for phase in phases),
        total_resolution_ms=CONDITION_RESOLUTION_MS,
        is_over=ready is not None or pod.status.phase in ENDED_PHASES,
    )


def _started(pod: Pod) -> datetime | None:
    """Return when the last of the main containers was started; None if that is not known."""
    statuses = pod.status.container_statuses
    if len(statuses) != len(pod.spec.containers) or not statuses:
        return None
    moments = [_started_first(status) for status in statuses]
    known = [moment for moment in moments if moment is not None]
    return max(known) if len(known) == len(moments) else None


def _started_first(status: ContainerStatus) -> datetime | None:
    if status.restart_count:
        return None
    state = status.state.running or status.state.terminated
    return _moment(state.started_at) if state is not None else None


def _since(pod: Pod, type_: str) -> datetime | None:
    """Return since when a condition has been true; None if it is not, or has no time."""
    for condition in pod.status.conditions:
        if condition.type == type_ and condition.status == "True":
            return _moment(condition.last_transition_time)
    return None


def _moment(text: str | None) -> datetime | None:
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None


def _between_ms(begin: datetime, end: datetime) -> float:
    return (end - begin) / timedelta(milliseconds=1)


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the value below which a share (0 to 1) of the values is; None without values."""
    ordered = sorted(value for value in values if isfinite(value))
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


# Words for start phases: durations as people read them, no finer than they are known.

_LEAST_OTHER_MS = 1.0
_LONG_MS = 600_000.0


def duration_words(ms: float) -> str:
    """Return a duration of milliseconds: `0.4 ms`, `63 ms`, `1.24 s`, `95 s`, `12 min`."""
    if 0 < ms < 10:
        return f"{ms:.1f} ms"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 10_000:
        return f"{ms / 1000:.2f} s"
    return f"{ms / 1000:.0f} s" if ms < _LONG_MS else f"{ms / 60_000:.0f} min"


def phase_words(phases: StartPhases) -> str:
    """Return the phases in one line; those known to a second are shown as `within 1 s`."""
    shown = [
        f"{phase.name} {length_words(phase)}" for phase in phases.phases if not _is_nothing(phase)
    ]
    state = "" if phases.is_over else ", still starting"
    on_node = phases.on_node_ms
    if on_node is not None:
        total = f"{duration_words(on_node)} on the node"
    else:
        total = f"{second_words(phases.total_ms)} in all"
    return f"{total}{state}: {' · '.join(shown)}"


def length_words(phase: Phase) -> str:
    """Return how long a phase took, no finer than it is known."""
    return known_words(phase.ms, phase.resolution_ms)


def known_words(ms: float, resolution_ms: float) -> str:
    """Return a duration no finer than it is known."""
    return second_words(ms) if resolution_ms >= CONDITION_RESOLUTION_MS else duration_words(ms)


def second_words(ms: float) -> str:
    """Return a difference of two whole seconds: the real one is less than a second off."""
    return "within 1 s" if ms < CONDITION_RESOLUTION_MS else f"{ms / 1000:.0f} s (± 1 s)"


def _is_nothing(phase: Phase) -> bool:
    return phase.name == OTHER and phase.ms < _LEAST_OTHER_MS
