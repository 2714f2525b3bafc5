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
            queue.release_due()
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
    queue.release_due()
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


def test_pods_that_fail_again_and_again_leave_the_queue_no_larger() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    queue.add(a_pod("a"))
    queue.add(a_pod("b"))
    for _ in range(1000):
        entry = take(queue)
        park(queue, entry)
        queue.promote(entry)
    assert queue.timers <= 2 * len(queue) + 64
    # Entries that no longer count are cut away: both still have their turn in the end.
    for _ in range(2):
        park(queue, take(queue))
    for _ in range(200):
        parked = queue.get("default/a")
        assert parked is not None
        queue.promote(parked)
        park(queue, take(queue))
    assert queue.take() is None
    clock.advance(300)
    queue.release_due()
    assert {take(queue).pod.metadata.name for _ in range(2)} == {"a", "b"}


def test_timers_stay_in_order_when_stale_ones_are_removed() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock, longest_wait_s=100)
    for number in range(30):
        queue.add(a_pod(f"p{number}"))
        clock.advance(1)
        park(queue, take(queue))
    victim = queue.get("default/p29")
    assert victim is not None
    for _ in range(300):
        queue.promote(victim)
        park(queue, take(queue))
    released = []
    for _ in range(101):
        clock.advance(1)
        queue.release_due()
        while (entry := queue.take()) is not None:
            released.append(entry.pod.metadata.name)
    assert released == [f"p{number}" for number in range(30)]


def test_a_pod_backing_off_is_taken_early_only_when_none_is_active() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    for name in ("first", "second"):
        queue.add(a_pod(name))
    first, second = take(queue), take(queue)
    for entry in (second, first):
        park(queue, entry)
    clock.advance(0.5)
    queue.wake(first)
    queue.wake(second)
    assert (first.place, second.place) == (Place.BACKOFF, Place.BACKOFF)
    queue.add(a_pod("fresh"))
    assert [take(queue).pod.metadata.name for _ in range(3)] == ["fresh", "first", "second"]


def test_a_pod_whose_pause_is_over_is_active_at_once_when_woken() -> None:
    clock = FakeClock()
    queue = SchedulingQueue(clock)
    queue.add(a_pod("a", priority=5))
    queue.add(a_pod("b"))
    entry = take(queue)
    park(queue, entry)
    clock.advance(1)
    queue.wake(entry)
    assert entry.place is Place.ACTIVE
    assert take(queue) is entry
    # It is not in the queue of those backing off as well.
    assert take(queue).pod.metadata.name == "b"
    assert queue.take() is None
    queue.wake(entry)
    place: Place = entry.place
    assert place is Place.TAKEN


@pytest.mark.parametrize("place", ["parked", "backoff", "active", "taken"])
def test_only_waiting_pods_are_promoted(place: str) -> None:
    queue = SchedulingQueue(FakeClock())
    entry = queue.add(a_pod("a"))
    if place != "active":
        take(queue)
    if place == "parked":
        park(queue, entry)
    if place == "backoff":
        queue.retry(entry)
    before = entry.ticket
    queue.promote(entry)
    assert (entry.ticket != before) is (place in ("parked", "backoff"))
    assert (queue.take() is entry) is (place != "taken")


async def test_waiting_ends_when_there_is_work_and_not_before() -> None:
    queue = SchedulingQueue(FakeClock())
    assert queue.take() is None
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    entry = queue.add(a_pod("a"))
    await asyncio.wait_for(waiting, 5)
    take(queue)
    assert queue.take() is None
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    park(queue, entry)
    queue.wake(entry)
    await asyncio.wait_for(waiting, 5)


def test_a_parked_pod_that_is_removed_is_woken_by_nothing() -> None:
    queue = SchedulingQueue(FakeClock())
    for name in ("a", "b"):
        queue.add(a_pod(name))
    first, second = take(queue), take(queue)
    park(queue, first, "x")
    park(queue, second, "x")
    queue.remove(first.key)
    asked = []
    queue.wake_if(lambda _, rejected: bool(asked.append(rejected)) or True)
    assert asked == [frozenset({"x"})], "pods of one template are asked about once"
    assert take(queue) is second
    assert queue.take() is None
    assert len(queue) == 1
    assert queue.get(first.key) is None
