"""What a scheduler counts."""

from __future__ import annotations

import asyncio
from typing import cast

from moorage.scheduler import SchedulerMetrics, SchedulerOptions, run_scheduler
from moorage.wire.client.rest import Client
from moorage.wire.metrics import exposition
from tests.clocks import QuickClock
from tests.scheduler.fake_client import FakeClient
from tests.scheduler.objects import a_node, a_pod

NAME = "scheduler_schedule_attempts_total"
STARTS = "scheduler_pod_start_phase_duration_seconds"
DURATION = "scheduler_scheduling_attempt_duration_seconds"


def samples(metrics: SchedulerMetrics) -> dict[str, float]:
    lines = exposition(metrics.families()).splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines
            if not line.startswith("#")}  # fmt: skip


def attempts(metrics: SchedulerMetrics, result: str) -> float:
    labels = f'{{profile="default-scheduler",result="{result}"}}'
    shown = samples(metrics)
    assert shown.get(NAME + labels) == shown.get(f"{DURATION}_count{labels}")
    return shown.get(NAME + labels, 0)


def pending(metrics: SchedulerMetrics) -> dict[str, float]:
    prefix = 'scheduler_pending_pods{queue="'
    return {
        name.removeprefix(prefix).removesuffix('"}'): value
        for name, value in samples(metrics).items()
        if name.startswith(prefix)
    }


async def test_attempts_and_waiting_pods() -> None:
    client, metrics = FakeClient(), SchedulerMetrics("default-scheduler")
    client.put(
        a_node("n1", cpu="1"),
        a_pod("fits", cpu="500m"),
        a_pod("large", cpu="9"),
        a_pod("gated", schedulingGates=[{"name": "example.com/wait"}]),
    )
    running = asyncio.create_task(
        run_scheduler(cast("Client", client), SchedulerOptions(), QuickClock(), metrics=metrics)
    )
    try:
        assert await client.until_bound("fits") == "n1"
        await client.until_event("large", "FailedScheduling")
        await client.until(lambda: attempts(metrics, "scheduled") == 1)
        await client.until(lambda: pending(metrics)["gated"] == 1)
        assert attempts(metrics, "unschedulable") == 1
        labels = '{phase="schedule",runtime_class="",runtime_handler=""}'
        assert samples(metrics)[f"{STARTS}_count{labels}"] == 1
        assert attempts(metrics, "error") == 0
        assert pending(metrics) == {"active": 0, "backoff": 0, "unschedulable": 1, "gated": 1}
    finally:
        running.cancel()
        await asyncio.wait((running,))


def test_starts_are_counted_by_class_and_handler_up_to_a_bound() -> None:
    metrics = SchedulerMetrics("default-scheduler")
    for number in range(120):
        metrics.scheduled(f"class-{number}", "runc", 0.25)
    shown = [name for name in samples(metrics) if name.startswith(f"{STARTS}_count")]
    assert (
        f'{STARTS}_count{{phase="schedule",runtime_class="class-0",runtime_handler="runc"}}'
        in shown
    )
    other = f'{STARTS}_count{{phase="schedule",runtime_class="other",runtime_handler="other"}}'
    assert samples(metrics)[other] == 20
    assert len(shown) == 101
