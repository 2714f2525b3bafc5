from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from moorage.api.containers import Probe
from moorage.api.pods import Pod
from moorage.node.metrics import Metrics
from moorage.node.probes.checks import CheckResult, Outcome
from moorage.node.probes.prober import PodProber
from moorage.node.runtime.views import PodView
from tests.clocks import FakeClock, settle
from tests.node.objects import UID, Wire, a_pod, a_view, engine_has, exited, wire_container


class FakeChecks:
    """Answers by what is asked: `path` of an HTTP probe → outcome, success by default."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.outcomes: dict[str, Outcome] = {}
        self.asked: list[tuple[str, float]] = []

    async def run(self, probe: Probe, container: Any, container_id: str, address: str) -> Any:
        del container, container_id
        assert address == "10.1.0.5"
        assert probe.http_get is not None
        path = probe.http_get.path
        self.asked.append((path, self._clock.monotonic()))
        return CheckResult(self.outcomes.get(path, Outcome.SUCCESS), "said")

    def times(self, path: str) -> list[float]:
        return [moment for asked, moment in self.asked if asked == path]


class FakeEvents:
    def __init__(self) -> None:
        self.recorded: list[tuple[str, str]] = []

    def container(self, pod: Pod, member: Any, type_: str, reason: str, message: str) -> None:
        del pod, member
        assert type_ == "Warning"
        self.recorded.append((reason, message))


class Case:
    """A prober in still time."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.checks, self.events, self.metrics = FakeChecks(self.clock), FakeEvents(), Metrics()
        self.changes = 0
        self.prober = self.new_prober()
        self.tasks: asyncio.TaskGroup

    def new_prober(self) -> PodProber:
        checks: Any = self.checks
        events: Any = self.events
        return PodProber(checks, events, self.metrics, self.clock, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def follow(self, pod: Pod, view: PodView) -> None:
        self.prober.follow(pod, view, "10.1.0.5", self.tasks)

    async def run(self, seconds: int) -> None:
        await settle()
        for _ in range(seconds):
            self.clock.advance(1)
            await settle()


@asynccontextmanager
async def probing() -> AsyncIterator[Case]:
    case = Case()
    async with asyncio.TaskGroup() as tasks:
        case.tasks = tasks
        yield case
        case.prober.stop()


def probe(path: str, **fields: Any) -> Wire:
    usual = {"periodSeconds": 10, "failureThreshold": 2, "successThreshold": 1}
    return {"httpGet": {"path": path, "port": 80}, **usual, **fields}


def a_probed_pod(**probes: Any) -> Pod:
    fields = {f"{kind}Probe": probe for kind, probe in probes.items()}
    return a_pod(wire_container(**fields))


RUNNING = a_view(engine_has(created_s=0))


async def test_readiness_is_asked_at_once_and_then_every_period() -> None:
    async with probing() as case:
        case.follow(a_probed_pod(readiness=probe("r")), RUNNING)
        await case.run(25)
        assert case.checks.times("r") == [0, 10, 20]
        assert case.prober.verdicts.readiness == {"app-0": True}
        assert case.changes == 1


async def test_the_first_one_waits_for_the_initial_delay() -> None:
    async with probing() as case:
        case.follow(a_probed_pod(liveness=probe("l", initialDelaySeconds=5)), RUNNING)
        await case.run(16)
        assert case.checks.times("l") == [5, 15]


async def test_verdict_needs_enough_failures_and_each_is_reported() -> None:
    async with probing() as case:
        case.checks.outcomes["l"] = Outcome.FAILURE
        case.follow(a_probed_pod(liveness=probe("l")), RUNNING)
        await case.run(9)
        assert case.prober.verdicts.liveness == {}
        await case.run(1)
        assert case.prober.verdicts.liveness == {"app-0": False}
        assert case.events.recorded == [("Unhealthy", "Liveness probe failed: said")] * 2
        await case.run(60)
        assert len(case.checks.asked) == 2, "a failed liveness is final"


async def test_probe_error_changes_no_verdict() -> None:
    async with probing() as case:
        case.checks.outcomes["l"] = Outcome.ERROR
        case.follow(a_probed_pod(liveness=probe("l", failureThreshold=1)), RUNNING)
        await case.run(5)
        assert case.checks.times("l") == [0, 0, 0], "tried three times in a row"
        assert case.prober.verdicts.liveness == {}
        assert case.events.recorded == [
            ("Unhealthy", "Liveness probe errored and resulted in unknown state: said")
        ]


async def test_a_warning_counts_as_success() -> None:
    async with probing() as case:
        case.checks.outcomes["r"] = Outcome.WARNING
        case.follow(a_probed_pod(readiness=probe("r")), RUNNING)
        await case.run(1)
        assert case.prober.verdicts.readiness == {"app-0": True}
        assert case.events.recorded == [("ProbeWarning", "Readiness probe warning: said")]


async def test_the_others_wait_for_startup_and_then_are_asked_at_once() -> None:
    async with probing() as case:
        case.checks.outcomes["s"] = Outcome.FAILURE
        pod = a_probed_pod(
            startup=probe("s", failureThreshold=30), readiness=probe("r", periodSeconds=100)
        )
        case.follow(pod, RUNNING)
        await case.run(39)
        assert case.checks.times("r") == []
        case.checks.outcomes["s"] = Outcome.SUCCESS
        await case.run(1)
        assert case.prober.verdicts.startup == {"app-0": True}
        assert case.checks.times("r") == [40]
        await case.run(30)
        assert case.checks.times("s") == [0, 10, 20, 30, 40], "startup is not asked again"


async def test_containers_of_an_earlier_agent_are_not_all_asked_at_one_moment() -> None:
    async with probing() as case:
        case.clock.advance(1000)
        case.prober = case.new_prober()
        pod = a_probed_pod(liveness=probe("l", periodSeconds=1000), startup=probe("s"))
        case.prober.adopt("app-0")
        case.follow(pod, RUNNING)
        await settle()
        assert case.checks.asked == []
        await case.run(1001)
        assert len(case.checks.times("l")) >= 1
        assert case.checks.times("s") == [], "it was reported as started"


async def test_exited_container_is_no_longer_probed_and_is_forgotten() -> None:
    async with probing() as case:
        pod = a_probed_pod(readiness=probe("r"))
        case.follow(pod, RUNNING)
        await case.run(1)
        case.follow(pod, a_view(exited()))
        await case.run(30)
        assert case.checks.times("r") == [0]
        assert case.prober.verdicts.readiness == {"app-0": True}
        case.follow(pod, a_view(engine_has(restarts=1, created_s=31)))
        await case.run(1)
        assert case.prober.verdicts.readiness == {"app-1": True}


async def test_of_the_dying_only_readiness_is_asked() -> None:
    async with probing() as case:
        pod = a_probed_pod(readiness=probe("r"), liveness=probe("l"))
        case.follow(pod, RUNNING)
        await case.run(1)
        case.prober.stop_all_but_readiness()
        case.follow(pod, RUNNING)
        await case.run(20)
        assert len(case.checks.times("l")) == 1
        assert len(case.checks.times("r")) == 3
        assert case.prober.verdicts.liveness == {}


async def test_attempts_are_counted() -> None:
    async with probing() as case:
        case.follow(a_probed_pod(readiness=probe("r")), RUNNING)
        await case.run(11)
        count = case.metrics.probes.value(
            probe_type="Readiness",
            result="successful",
            container="app",
            pod="web",
            namespace="shop",
            pod_uid=UID,
        )
        assert count == 2
