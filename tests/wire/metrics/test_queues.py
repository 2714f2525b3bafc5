"""What work queues count."""

from __future__ import annotations

import asyncio

import pytest

from moorage.wire.client.queue import WorkQueue
from moorage.wire.metrics import QueueMetrics, counting_queues, exposition
from tests.clocks import FakeClock, settle


def samples(metrics: QueueMetrics) -> dict[str, float]:
    """Return the samples by series, buckets left out."""
    lines = exposition(metrics.families()).splitlines()
    shown = [line.rpartition(" ") for line in lines if "#" not in line and "_bucket" not in line]
    return {series: float(value) for series, _, value in shown}


@pytest.mark.failing_reconciles
async def test_a_queue_counts_what_becomes_of_its_keys() -> None:
    clock, metrics = FakeClock(), QueueMetrics()
    with counting_queues(metrics):
        queue: WorkQueue[str] = WorkQueue("q", clock=clock)
    gate = asyncio.Event()
    failures = [RuntimeError("first")]

    async def reconcile(_: str) -> float | None:
        await gate.wait()
        if failures:
            raise failures.pop()
        return None

    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert samples(metrics)['workqueue_depth{name="q"}'] == 2
    assert samples(metrics)['workqueue_adds_total{name="q"}'] == 2
    clock.advance(2)
    running = asyncio.create_task(queue.run(reconcile))
    await settle()
    clock.advance(3)
    shown = samples(metrics)
    assert shown['workqueue_depth{name="q"}'] == 1
    assert shown['workqueue_queue_duration_seconds_sum{name="q"}'] == 2
    assert shown['workqueue_unfinished_work_seconds{name="q"}'] == 3
    assert shown['workqueue_longest_running_processor_seconds{name="q"}'] == 3
    gate.set()
    await settle()
    clock.advance(60)
    await settle()
    shown = samples(metrics)
    assert shown['workqueue_retries_total{name="q"}'] == 1
    assert shown['workqueue_adds_total{name="q"}'] == 3
    assert shown['workqueue_work_duration_seconds_count{name="q"}'] == 3
    assert shown['workqueue_unfinished_work_seconds{name="q"}'] == 0
    running.cancel()
    await asyncio.wait((running,))


def test_queues_of_one_name_are_one_series() -> None:
    metrics = QueueMetrics()
    with counting_queues(metrics):
        queues = [WorkQueue[str]("q", clock=FakeClock()) for _ in range(2)]
    for queue in queues:
        queue.add("a")
    assert samples(metrics)['workqueue_depth{name="q"}'] == 2


def test_a_queue_outside_of_the_block_counts_nothing() -> None:
    metrics = QueueMetrics()
    with counting_queues(metrics):
        pass
    WorkQueue[str]("q", clock=FakeClock()).add("a")
    assert samples(metrics) == {}
