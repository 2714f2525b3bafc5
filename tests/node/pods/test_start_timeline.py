"""Start timeline: what of a pod's life counts as its start, and when it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from moorage.api.pods import Pod, PodCondition, PodStatus
from moorage.node.pods.start_timeline import StartTimeline
from moorage.runtimeclass.start_phases import (
    CONDITION,
    IMAGE,
    INIT,
    READY,
    SANDBOX,
    START,
    parse_measured,
)
from tests.clocks import FakeClock
from tests.node.objects import a_pod, wire_container
from tests.node.pods.lives import Life, living

READY_STATUS = PodStatus(phase="Running", conditions=(PodCondition(type="Ready", status="True"),))
RUNNING_STATUS = PodStatus(phase="Running")


def condition_of(status: PodStatus | None) -> PodCondition | None:
    assert status is not None
    return next((one for one in status.conditions if one.type == CONDITION), None)


def milliseconds(status: PodStatus | None) -> dict[str, float]:
    condition = condition_of(status)
    assert condition is not None
    measured = parse_measured(condition.message)
    assert measured is not None
    return measured.milliseconds


def test_a_start_is_written_at_running_and_at_readiness_and_then_never_again() -> None:
    clock, pod = FakeClock(), a_pod()
    timeline = StartTimeline(pod, clock)
    with timeline.step(SANDBOX):
        clock.advance(0.5)
    assert condition_of(timeline.with_condition(pod, PodStatus(phase="Pending"))) is None
    with timeline.step(START, "app"):
        clock.advance(0.25)
    running = timeline.with_condition(pod, RUNNING_STATUS)
    assert milliseconds(running) == {"sandbox": 500.0, "start": 250.0, "other": 0.0}
    clock.advance(1)
    assert timeline.with_condition(pod, RUNNING_STATUS) == running
    assert timeline.take() == {}
    ready = timeline.with_condition(pod, READY_STATUS)
    assert milliseconds(ready) == {
        "sandbox": 500.0, "start": 250.0, "ready": 1000.0, "other": 0.0,
    }  # fmt: skip
    assert timeline.take() == milliseconds(ready)
    assert timeline.take() == {}
    # A restart is no part of the start.
    with timeline.step(IMAGE, "app"):
        clock.advance(9)
    later = timeline.with_condition(pod, RUNNING_STATUS)
    assert condition_of(later) == condition_of(ready)
    statuses = [condition_of(status) for status in (running, ready)]
    assert [one.status for one in statuses if one is not None] == ["False", "True"]


def test_a_pod_that_ends_before_a_container_was_started_has_no_phases() -> None:
    clock, pod = FakeClock(), a_pod()
    timeline = StartTimeline(pod, clock)
    timeline.begin(SANDBOX)
    clock.advance(3)
    assert condition_of(timeline.with_condition(pod, PodStatus(phase="Failed"))) is None
    assert timeline.take() == {}


def test_a_job_that_ends_at_once_has_phases_but_was_never_ready() -> None:
    clock, pod = FakeClock(), a_pod()
    timeline = StartTimeline(pod, clock)
    with timeline.step(START, "app"):
        clock.advance(0.125)
    status = timeline.with_condition(pod, PodStatus(phase="Succeeded"))
    assert milliseconds(status) == {"start": 125.0, "other": 0.0}
    condition = condition_of(status)
    assert condition is not None
    assert condition.status == "True"


def _reported(**status: Any) -> Pod:
    pod = a_pod()
    return msgspec.structs.replace(pod, status=msgspec.convert(status, PodStatus))


def test_a_start_that_an_earlier_agent_began_is_not_measured() -> None:
    pod = _reported(startTime="2026-01-01T00:00:00Z", phase="Pending")
    timeline = StartTimeline(pod, FakeClock())
    with timeline.step(START, "app"):
        pass
    assert timeline.with_condition(pod, READY_STATUS) == READY_STATUS


def test_what_an_earlier_agent_wrote_stays_and_is_ended() -> None:
    old = {"type": CONDITION, "status": "False", "message": "kept as it is", "reason": "Starting"}
    pod = _reported(startTime="2026-01-01T00:00:00Z", conditions=[old])
    timeline = StartTimeline(pod, FakeClock())
    running = condition_of(timeline.with_condition(pod, RUNNING_STATUS))
    ready = condition_of(timeline.with_condition(pod, READY_STATUS))
    assert running is not None
    assert ready is not None
    assert (running.status, running.message) == ("False", "kept as it is")
    assert (ready.status, ready.message) == ("True", "kept as it is")
    assert condition_of(timeline.with_condition(pod, READY_STATUS)) == ready


# Whole lives


def phase(life: Life) -> str:
    return "" if life.api.pod is None else life.api.pod.status.phase


async def test_the_phases_are_written_with_the_status_that_says_running(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        writes: list[Any] = []
        patch = life.api.patch

        async def counted(*arguments: Any, **named: Any) -> Pod:
            writes.append(arguments[2])
            return await patch(*arguments, **named)

        life.api.patch = counted  # type: ignore[method-assign]
        life.begin(a_pod(runtimeClassName="fast"))
        life.api.add_class("fast", "crun")
        await life.until(lambda: phase(life) == "Running")
        assert life.api.pod is not None
        assert milliseconds(life.api.pod.status)
        with_phases = [
            write
            for write in writes
            if CONDITION in {one["type"] for one in write["status"].get("conditions", ())}
        ]
        assert [write["status"]["phase"] for write in with_phases] == ["Running"]
        assert writes[-1] is with_phases[-1]
        series = 'kubelet_pod_start_phase_duration_seconds_count{phase="sandbox",'
        text = life.context.metrics.text(["kubelet_pod_start_phase"])
        assert f'{series}runtime_class="fast",runtime_handler="crun"}} 1' in text


async def test_the_time_of_init_containers_is_a_phase(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod(initContainers=[wire_container("setup")]))
        await life.until(lambda: life.engine.running == ["setup"])
        life.clock.advance(7)
        life.engine.end("setup")
        await life.look()
        await life.until(lambda: phase(life) == "Running")
        assert life.api.pod is not None
        spent = milliseconds(life.api.pod.status)
        assert spent[INIT] >= 7000
        assert spent[START] == 0


async def test_an_agents_restart_leaves_the_phases_alone(tmp_path: Path) -> None:
    async with living(tmp_path) as life:
        life.begin(a_pod())
        await life.until(lambda: phase(life) == "Running")
        assert life.api.pod is not None
        before = condition_of(life.api.pod.status)
        await life.restart_agent()
        life.clock.advance(30)
        await life.look()
        assert life.api.pod is not None
        assert condition_of(life.api.pod.status) == before
        assert life.context.metrics.start_phases.totals() == {}


async def test_readiness_is_measured_from_running(tmp_path: Path) -> None:
    gates = [{"conditionType": "example.com/gate"}]
    async with living(tmp_path) as life:
        life.begin(a_pod(readinessGates=gates))
        await life.until(lambda: phase(life) == "Running")
        assert life.api.pod is not None
        assert READY not in milliseconds(life.api.pod.status)
        life.clock.advance(3)
        gate = PodCondition(type="example.com/gate", status="True")
        status = life.api.pod.status
        conditions = (*status.conditions, gate)
        status = msgspec.structs.replace(status, conditions=conditions)
        life.api.put(msgspec.structs.replace(life.api.pod, status=status))
        await life.until(
            lambda: life.api.pod is not None and READY in milliseconds(life.api.pod.status)
        )
        assert milliseconds(life.api.pod.status)[READY] >= 3000
