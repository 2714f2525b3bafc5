from __future__ import annotations

import asyncio

import pytest

from moorage.scheduler.query import make_query
from moorage.scheduler.queue import Place, SchedulingQueue, Waiting
from tests.clocks import FakeClock
from tests.scheduler.objects import a_pod


def park(queue: SchedulingQueue, entry: Waiting, *filters: str) -> None:
    queue.park(entry, frozenset(filters), make_query(entry.pod))


def take(queue: SchedulingQueue) -> Waiting:
    entry = queue.take()
    assert entry is not None
    return entry


def test_more_important_pods_come_first_then_older_ones() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    for name, priority in (("old", 0), ("young", 0), ("boss", 10)):
        queue.add(a_pod(name, priority=priority))
        clock.advance(1)
    assert [take(queue).pod.metadata.name for _ in range(3)] == ["boss", "old", "young"]
    assert queue.take() is None


def test_a_parked_pod_waits_until_woken() -> None:
    queue = SchedulingQueue(FakeClock())
    queue.add(a_pod("a"))
    entry = take(queue)
    park(queue, entry, "NodeResourcesFit")
    assert queue.take() is None
    queue.wake_if(lambda _, rejected_by: "TaintToleration" in rejected_by)
    assert queue.take() is None
    queue.wake_if(lambda _, rejected_by: "NodeResourcesFit" in rejected_by)
    assert queue.take() is entry
    assert entry.attempts == 2


def test_a_woken_pod_goes_behind_those_that_have_not_failed() -> None:
    queue = SchedulingQueue(FakeClock())
    queue.add(a_pod("failed", priority=10))
    failed = take(queue)
    park(queue, failed)
    queue.wake(failed)
    queue.add(a_pod("fresh"))
    assert [take(queue).pod.metadata.name for _ in range(2)] == ["fresh", "failed"]


def test_an_error_is_retried_after_growing_pauses_only() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    queue.add(a_pod("a"))
    pauses = []
    for _ in range(6):
        entry = take(queue)
        queue.retry(entry)
        begin = clock.monotonic()
        while entry.place is Place.BACKOFF:
            assert queue.take() is None
            clock.advance(0.5)
            queue._release_due()
        pauses.append(clock.monotonic() - begin)
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_a_removed_pod_never_comes_back() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    queue.add(a_pod("a"))
    entry = take(queue)
    queue.remove(entry.key)
    park(queue, entry)
    queue.retry(entry)
    clock.advance(1000)
    queue._release_due()
    assert queue.take() is None
    assert len(queue) == 0


async def test_a_parked_pod_is_looked_at_again_in_the_end() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock, longest_wait_s=300)
    queue.add(a_pod("a"))
    park(queue, take(queue))
    runner = asyncio.create_task(queue.run())
    try:
        for _ in range(3):
            await asyncio.sleep(0)
        clock.advance(299)
        assert queue.take() is None
        clock.advance(1)
        async with asyncio.timeout(5):
            await queue.wait()
        assert take(queue).pod.metadata.name == "a"
    finally:
        runner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await runner
