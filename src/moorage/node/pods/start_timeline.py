"""Start timeline of one pod: measures the phases of its start, and keeps them in a condition.

The pod's worker says which steps begin and end. The condition goes into status patches that are
sent anyway: at Running and at readiness, or at the pod's end. Decision:
docs/decisions/114-start-phases-in-a-condition.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from moorage.api.clock import Clock, format_time
from moorage.api.conditions import is_ready
from moorage.api.pods import Pod, PodCondition, PodStatus
from moorage.node.pod_facts.containers import RUNNING, TERMINAL
from moorage.runtimeclass.start_phases import (
    CONDITION,
    INIT,
    READY,
    START,
    Measured,
    PhaseMeter,
    format_measured,
)

_UNDER_WAY, _OVER = "Starting", "Started"


class StartTimeline:
    """The start of one pod on this node.

    A pod that an earlier agent has begun to start is not measured, since its beginning is unknown;
    what that agent has written stays.
    """

    def __init__(self, pod: Pod, clock: Clock) -> None:
        self._clock = clock
        self._seen = clock.now()
        self._meter: PhaseMeter | None = PhaseMeter(clock.monotonic())
        self._has_started = self._is_running = False
        self._milliseconds: dict[str, float] = {}
        conditions = pod.status.conditions
        self._condition = next(
            (condition for condition in conditions if condition.type == CONDITION), None
        )
        if pod.status.start_time is not None or self._condition is not None:
            self._meter = None

    def take(self) -> dict[str, float]:
        """Return the milliseconds by phase, once after the start is over; empty otherwise."""
        milliseconds, self._milliseconds = self._milliseconds, {}
        return milliseconds

    @contextmanager
    def step(self, phase: str, about: str = "") -> Iterator[None]:
        """Measure a step. One that raises goes on until it is repeated and succeeds."""
        self.begin(phase, about)
        yield
        self.end(phase, about)

    def begin(self, phase: str, about: str = "") -> None:
        """Begin a step, or continue one that failed. `about` is the container's name."""
        self._has_started = self._has_started or phase == START
        if self._meter is not None:
            self._meter.begin(phase, self._clock.monotonic(), about)

    def end(self, phase: str, about: str = "") -> None:
        """End a step."""
        if self._meter is not None:
            self._meter.end(phase, self._clock.monotonic(), about)

    def end_init(self) -> None:
        """Note that no init container runs: the next container is being started."""
        if self._meter is not None:
            self._meter.end_all(INIT, self._clock.monotonic())

    def with_condition(self, pod: Pod, status: PodStatus) -> PodStatus:
        """Return the status with the condition that has the phases, if there is one."""
        is_over = is_ready(status.conditions) or status.phase in TERMINAL
        if self._meter is not None:
            self._observe(self._meter, pod, status.phase, is_over=is_over)
        elif self._condition is not None and is_over and self._condition.status != "True":
            # An earlier agent saw its beginning only.
            self._condition = self._dated(self._condition.message, pod, is_over=True)
        if self._condition is None:
            return status
        return msgspec.structs.replace(status, conditions=(*status.conditions, self._condition))

    def _observe(self, meter: PhaseMeter, pod: Pod, phase: str, *, is_over: bool) -> None:
        now_s = self._clock.monotonic()
        if phase == RUNNING and not self._is_running:
            self._is_running = True
            meter.end_all(INIT, now_s)
            meter.begin(READY, now_s)
        elif not is_over:
            return
        if is_over:
            self._meter = None
        if not self._has_started:
            # It was refused or ended before a container was started.
            return
        milliseconds = meter.milliseconds(now_s)
        if is_over:
            self._milliseconds = milliseconds
        else:
            del milliseconds[READY]
        message = format_measured(Measured(self._seen, milliseconds))
        self._condition = self._dated(message, pod, is_over=is_over)

    def _dated(self, message: str, pod: Pod, *, is_over: bool) -> PodCondition:
        return PodCondition(
            type=CONDITION,
            status="True" if is_over else "False",
            observed_generation=pod.metadata.generation,
            last_transition_time=format_time(self._clock.now()),
            reason=_OVER if is_over else _UNDER_WAY,
            message=message,
        )
