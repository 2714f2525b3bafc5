"""Pod prober: probes the containers of one pod while they run.

One task per probe and container, started when the container runs and cancelled when it ends.
Liveness and readiness probes wait until the container has started, then run at once. Source:
core/v1 Probe, kubelet `prober`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from moorage.api.clock import Clock
from moorage.api.containers import Probe
from moorage.api.logs import Log
from moorage.api.pods import Pod
from moorage.node.metrics import Metrics
from moorage.node.pod_facts.containers import Kind, Member, members
from moorage.node.pod_facts.events import PodEvents
from moorage.node.probes.checks import CheckResult, Checks, Outcome
from moorage.node.runtime.views import ContainerView, PodView, State
from moorage.node.status.inputs import Verdicts
from moorage.wire.client.recorder import WARNING

# Probe thresholds: turn single results into a verdict, pure.
#
# A verdict changes only after enough consecutive equal results. A failed liveness probe and any
# startup verdict are final for the container. Source: core/v1 Probe, kubelet `prober/worker.go`.


class ProbeKind(Enum):
    """Kind of probe; the value is its name in events."""

    LIVENESS = "Liveness"
    READINESS = "Readiness"
    STARTUP = "Startup"


@dataclass(slots=True)
class Thresholds:
    """Consecutive results of one probe of one container."""

    kind: ProbeKind
    failures: int
    successes: int
    _last: bool | None = field(default=None)
    _in_a_row: int = field(default=0)

    @classmethod
    def of(cls, kind: ProbeKind, probe: Probe) -> Thresholds:
        return cls(kind, max(probe.failure_threshold, 1), max(probe.success_threshold, 1))

    def add(self, is_success: bool) -> bool | None:
        """Count a result; return the verdict it leads to, or None."""
        self._in_a_row = self._in_a_row + 1 if self._last is is_success else 1
        self._last = is_success
        enough = self.successes if is_success else self.failures
        return is_success if self._in_a_row >= enough else None

    def is_final(self, verdict: bool) -> bool:
        """Return whether probing ends with this verdict."""
        match self.kind:
            case ProbeKind.STARTUP:
                return True
            case ProbeKind.LIVENESS:
                return not verdict
        return False


log = Log(__name__)

_TRIES = 3
_NANO = 1_000_000_000

Key = tuple[str, ProbeKind]


@dataclass(slots=True)
class _Running:
    kind: ProbeKind
    container_id: str
    task: asyncio.Task[None]


class PodProber:
    """Probes of one pod. `on_verdict` is called when a verdict has changed."""

    def __init__(
        self,
        checks: Checks,
        events: PodEvents,
        metrics: Metrics,
        clock: Clock,
        on_verdict: Callable[[], None],
    ) -> None:
        self._checks = checks
        self._events = events
        self._metrics = metrics
        self._clock = clock
        self._on_verdict = on_verdict
        self._running: dict[Key, _Running] = {}
        self._started: dict[str, asyncio.Event] = {}
        self._begun_s = clock.now().timestamp()
        self._pod: Pod | None = None
        self._address = ""
        self._is_terminating = False
        self._liveness: dict[str, bool] = {}
        self._readiness: dict[str, bool] = {}
        self._startup: dict[str, bool] = {}

    @property
    def verdicts(self) -> Verdicts:
        return Verdicts(readiness=self._readiness, startup=self._startup, liveness=self._liveness)

    def follow(self, pod: Pod, view: PodView, address: str, tasks: asyncio.TaskGroup) -> None:
        """Start probes of running containers, and stop those of others. `address` is the pod's."""
        self._pod, self._address = pod, address
        running = {
            container_view.id
            for container_view in view.containers
            if container_view.state is State.RUNNING
        }
        self._drop(
            [
                key
                for key, running_probe in self._running.items()
                if running_probe.container_id not in running
            ]
        )
        for member in members(pod.spec):
            if member.kind is Kind.EPHEMERAL:
                continue
            container = view.latest(member.name)
            if container is not None and container.state is State.RUNNING:
                self._begin(member, container, tasks)
        self._forget_ended({container_view.id for container_view in view.containers})

    def mark_started(self, container_id: str) -> None:
        """Mark a container as started.

        By its startup probe, without one at once, or as reported by an earlier agent.
        """
        self._started.setdefault(container_id, asyncio.Event()).set()

    def adopt(self, container_id: str) -> None:
        """Take over a container that an earlier agent reported as started."""
        self._startup[container_id] = True
        self.mark_started(container_id)

    def stop_all_but_readiness(self) -> None:
        """Stop liveness and startup probes of a terminating pod, and drop liveness verdicts."""
        self._is_terminating = True
        self._drop(
            [
                key
                for key, running_probe in self._running.items()
                if running_probe.kind is not ProbeKind.READINESS
            ]
        )
        self._liveness.clear()

    def stop(self) -> None:
        """Stop every probe."""
        self._drop(list(self._running))

    def _begin(
        self, member: Member, container_view: ContainerView, tasks: asyncio.TaskGroup
    ) -> None:
        container = member.container
        probes = (
            (ProbeKind.LIVENESS, container.liveness_probe),
            (ProbeKind.READINESS, container.readiness_probe),
            (ProbeKind.STARTUP, container.startup_probe),
        )
        if container.startup_probe is None:
            self.mark_started(container_view.id)
        for kind, probe in probes:
            key = (container_view.id, kind)
            if probe is None or (self._is_terminating and kind is not ProbeKind.READINESS):
                continue
            if key not in self._running and not self._is_settled(key):
                task = tasks.create_task(self._probe(member, container_view, kind, probe))
                self._running[key] = _Running(kind, container_view.id, task)

    def _is_settled(self, key: Key) -> bool:
        container_id, kind = key
        if kind is ProbeKind.STARTUP:
            return container_id in self._startup
        return kind is ProbeKind.LIVENESS and self._liveness.get(container_id) is False

    async def _probe(
        self, member: Member, container: ContainerView, kind: ProbeKind, probe: Probe
    ) -> None:
        """Probe until the verdict is final, or until cancelled."""
        thresholds = Thresholds.of(kind, probe)
        started = self._started.setdefault(container.id, asyncio.Event())
        is_taken_over = started.is_set() and container.started_ns / _NANO < self._begun_s
        if kind is not ProbeKind.STARTUP:
            await started.wait()
        period_s = max(probe.period_seconds, 1)
        delay_s = self._delay_s(container, probe)
        if is_taken_over and delay_s == 0:
            # Taken over from an earlier agent like all others: spread the first probes over a
            # period.
            delay_s = random.uniform(0.0, period_s)
        await self._clock.sleep(delay_s)
        while True:
            begun_s = self._clock.monotonic()
            result = await self._run_check(member, container, probe)
            self._report(member, kind, result)
            if result.outcome is not Outcome.ERROR:
                is_success = result.outcome in (Outcome.SUCCESS, Outcome.WARNING)
                verdict = thresholds.add(is_success)
                if verdict is not None:
                    self._decide(kind, container.id, verdict)
                    if thresholds.is_final(verdict):
                        return
            spent_s = self._clock.monotonic() - begun_s
            await self._clock.sleep(max(0.0, period_s - spent_s))

    def _delay_s(self, container: ContainerView, probe: Probe) -> float:
        """Return the rest of the probe's initial delay in seconds."""
        age_s = self._clock.now().timestamp() - container.started_ns / _NANO
        return max(0.0, probe.initial_delay_seconds - age_s)

    async def _run_check(
        self, member: Member, container: ContainerView, probe: Probe
    ) -> CheckResult:
        result = CheckResult(Outcome.ERROR, "not run")
        for _ in range(_TRIES):
            result = await self._checks.run(probe, member.container, container.id, self._address)
            if result.outcome is not Outcome.ERROR:
                break
        return result

    def _decide(self, kind: ProbeKind, container_id: str, verdict: bool) -> None:
        table = {
            ProbeKind.LIVENESS: self._liveness,
            ProbeKind.READINESS: self._readiness,
            ProbeKind.STARTUP: self._startup,
        }[kind]
        if kind is ProbeKind.STARTUP and verdict:
            self.mark_started(container_id)
        if table.get(container_id) is not verdict:
            table[container_id] = verdict
            self._on_verdict()

    def _report(self, member: Member, kind: ProbeKind, result: CheckResult) -> None:
        assert self._pod is not None
        meta = self._pod.metadata
        self._metrics.probes.count(
            probe_type=kind.value,
            result=_RESULTS[result.outcome],
            container=member.name,
            pod=meta.name,
            namespace=meta.namespace,
            pod_uid=meta.uid,
        )
        form = _EVENTS.get(result.outcome)
        if form is not None:
            reason, text = form
            message = text.format(kind=kind.value, output=result.output)
            self._events.container(self._pod, member, WARNING, reason, message)

    def _drop(self, keys: list[Key]) -> None:
        for key in keys:
            self._running.pop(key).task.cancel()

    def _forget_ended(self, present: set[str]) -> None:
        for table in (self._liveness, self._readiness, self._startup):
            for container_id in [key for key in table if key not in present]:
                del table[container_id]
        for container_id in [key for key in self._started if key not in present]:
            del self._started[container_id]


_RESULTS = {
    Outcome.SUCCESS: "successful",
    Outcome.WARNING: "successful",
    Outcome.FAILURE: "failed",
    Outcome.ERROR: "unknown",
}

_EVENTS = {
    Outcome.WARNING: ("ProbeWarning", "{kind} probe warning: {output}"),
    Outcome.FAILURE: ("Unhealthy", "{kind} probe failed: {output}"),
    Outcome.ERROR: (
        "Unhealthy",
        "{kind} probe errored and resulted in unknown state: {output}",
    ),
}
