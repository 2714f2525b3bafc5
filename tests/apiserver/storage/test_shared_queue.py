"""Shared queues: places, budgets, and when readers are woken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.storage.shared_queue import QueueBudget, SharedQueue
from moorage.apiserver.storage.watcher import Watcher, WatcherOverflowError
from tests.clocks import settle


@dataclass(frozen=True)
class Changed:
    revision: int
    frame: bytes | None


def changed(revision: int) -> Changed:
    """Return an event whose frame takes 200 bytes of a queue."""
    return Changed(revision, b"%072d" % revision)


def queue_of(budget: QueueBudget, *timing: Any) -> SharedQueue[Changed, bytes]:
    return SharedQueue(lambda event: event.frame, budget, *timing)


def reader(queue: SharedQueue[Changed, bytes], budget: QueueBudget) -> Watcher[Changed, bytes]:
    watcher: Watcher[Changed, bytes] = Watcher(lambda event: event.frame, 0, budget)
    watcher.share(queue)
    return watcher


def numbers(frames: list[bytes]) -> list[int]:
    return [int(frame) for frame in frames]


async def test_each_reader_gets_what_comes_after_it_joined() -> None:
    budget = QueueBudget(10_000, 10_000)
    queue = queue_of(budget)
    early = reader(queue, budget)
    queue.push(changed(1))
    late = reader(queue, budget)
    queue.push(Changed(2, None))
    queue.push(changed(3))
    assert numbers(await early.next_batch()) == [1, 3]
    assert numbers(await late.next_batch()) == [3]
    assert await late.next_batch(timeout_s=0) == []


async def test_frames_count_once_until_the_last_reader_has_sent_them() -> None:
    budget = QueueBudget(10_000, 10_000)
    queue = queue_of(budget)
    quick, slow = reader(queue, budget), reader(queue, budget)
    for revision in (1, 2, 3):
        queue.push(changed(revision))
    assert budget.used == 600
    await quick.next_batch()
    # What was returned counts until the next call.
    assert (quick.queued_bytes, slow.queued_bytes) == (600, 600)
    await quick.next_batch(timeout_s=0)
    assert (quick.queued_bytes, slow.queued_bytes, budget.used) == (0, 600, 600)
    slow.close()
    assert (slow.queued_bytes, budget.used) == (0, 0)
    slow.close()
    quick.close()
    queue.push(changed(4))
    assert budget.used == 0


async def test_a_reader_that_is_too_slow_is_ended_and_the_others_are_not() -> None:
    budget = QueueBudget(600, 10_000)
    queue = queue_of(budget)
    quick, slow = reader(queue, budget), reader(queue, budget)
    for revision in range(1, 5):
        queue.push(changed(revision))
        if revision < 4:
            assert not slow.is_overflowed
        if not quick.is_overflowed:
            assert numbers(await quick.next_batch()) == [revision]
            await quick.next_batch(timeout_s=0)
    assert slow.is_overflowed
    with pytest.raises(WatcherOverflowError):
        await slow.next_batch()
    assert not quick.is_overflowed
    assert budget.used == 0


async def test_one_frame_above_the_budget_is_still_queued() -> None:
    budget = QueueBudget(10, 10_000)
    queue = queue_of(budget)
    only = reader(queue, budget)
    queue.push(changed(1))
    assert numbers(await only.next_batch()) == [1]
    # The first is being sent: the second is the only one that waits.
    queue.push(changed(2))
    assert not only.is_overflowed
    queue.push(changed(3))
    assert only.is_overflowed
    assert budget.used == 0


async def test_all_queues_together_end_the_longest_reader() -> None:
    budget = QueueBudget(10_000, 700)
    one, two = queue_of(budget), queue_of(budget)
    long, short = reader(one, budget), reader(two, budget)
    for revision in (1, 2, 3):
        one.push(changed(revision))
    two.push(changed(4))
    assert (long.is_overflowed, short.is_overflowed, budget.used) == (True, False, 200)


async def test_what_was_queued_before_comes_first() -> None:
    budget = QueueBudget(10_000, 10_000)
    queue = queue_of(budget)
    watcher: Watcher[Changed, bytes] = Watcher(lambda event: event.frame, 0, budget)
    watcher.push(changed(1))
    watcher.push(changed(2))
    watcher.share(queue)
    queue.push(changed(3))
    assert watcher.queued_bytes == 600
    assert numbers(await watcher.next_batch(limit_bytes=200)) == [1]
    # Without a limit all that is queued, as a bookmark needs it.
    assert numbers(await watcher.next_batch()) == [2, 3]


async def test_frames_that_all_have_sent_are_given_back_without_another_event() -> None:
    budget = QueueBudget(10_000, 10_000)
    queue = queue_of(budget)
    one, two = reader(queue, budget), reader(queue, budget)
    queue.push(changed(1))
    for watcher in (one, two):
        assert numbers(await watcher.next_batch()) == [1]
        assert await watcher.next_batch(timeout_s=0) == []
    assert budget.used == 0


async def test_quiet_queues_do_not_end_readers_of_others() -> None:
    budget = QueueBudget(10_000, 1_000)
    readers = []
    for revision in range(1, 20):
        queue = queue_of(budget)
        watcher = reader(queue, budget)
        readers.append(watcher)
        reading = asyncio.ensure_future(watcher.next_batch())
        await settle()
        queue.push(changed(revision))
        assert numbers(await reading) == [revision]
        assert await watcher.next_batch(timeout_s=0) == []
    assert not any(watcher.is_overflowed for watcher in readers)


async def test_many_readers_that_are_too_slow_leave_in_linear_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = QueueBudget(600, 100_000)
    queue = queue_of(budget)
    slow = [reader(queue, budget) for _ in range(2_000)]
    looks = 0
    drop = queue._drop_read

    def counted() -> None:
        nonlocal looks
        looks += 1
        drop()

    monkeypatch.setattr(queue, "_drop_read", counted)
    for revision in range(1, 5):
        queue.push(changed(revision))
    assert all(watcher.is_overflowed for watcher in slow)
    assert budget.used == 0
    assert looks == 1


async def test_readers_at_one_place_get_the_same_list() -> None:
    budget = QueueBudget(10_000, 10_000)
    queue = queue_of(budget)
    readers = [reader(queue, budget) for _ in range(3)]
    for revision in (1, 2, 3):
        queue.push(changed(revision))
    one, two = [await each.next_batch(limit_bytes=400) for each in readers[:2]]
    assert one is two
    assert numbers(one) == [1, 2]
    queue.push(changed(4))
    assert numbers(await readers[2].next_batch()) == [1, 2, 3, 4]


async def test_readers_are_woken_together_and_then_after_a_pause() -> None:
    now_s = 100.0
    planned: list[tuple[float, Any]] = []
    budget = QueueBudget(10_000, 10_000)
    queue = queue_of(budget, lambda: now_s, lambda *plan: planned.append(plan))
    waiting = [asyncio.ensure_future(reader(queue, budget).next_batch()) for _ in range(2)]
    await settle()
    queue.push(changed(1))
    queue.push(changed(2))
    assert [numbers(frames) for frames in await asyncio.gather(*waiting)] == [[1, 2], [1, 2]]
    await settle()
    assert planned == []
    # The last waking took nothing by this clock, so the next one comes at once.
    later = reader(queue, budget)
    reading = asyncio.ensure_future(later.next_batch())
    await settle()
    queue.push(changed(3))
    # One that takes 4 ms is followed by a pause of 8 ms.
    await asyncio.sleep(0)
    now_s = 100.004
    assert numbers(await reading) == [3]
    await settle()
    queue.push(changed(4))
    queue.push(changed(5))
    ((delay_s, flush),) = planned
    assert delay_s == pytest.approx(0.008)
    flush()
    assert numbers(await later.next_batch()) == [4, 5]
    # And the pause has a limit.
    now_s = 100.5
    await settle()
    queue.push(changed(6))
    assert planned[1][0] == pytest.approx(0.025)


async def test_finish_and_close_end_a_reader() -> None:
    budget = QueueBudget(10_000, 10_000)
    queue = queue_of(budget)
    watcher = reader(queue, budget)
    reading = asyncio.ensure_future(watcher.next_batch())
    await settle()
    queue.push(changed(1))
    watcher.finish()
    assert numbers(await reading) == [1]
    assert await watcher.next_batch() == []


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 60)),
        st.tuples(st.just("join"), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 5)),
        st.tuples(st.just("read all"), st.integers(0, 5)),
        st.tuples(st.just("close"), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(_STEPS, st.integers(150, 900), st.integers(200, 2000))
def test_no_reader_misses_a_frame_gets_one_twice_or_exceeds_its_budget(
    steps: list[tuple[str, int]], queue_bytes: int, all_bytes: int
) -> None:
    async def run() -> None:
        budget = QueueBudget(queue_bytes, all_bytes)
        queue = queue_of(budget)
        readers: list[tuple[Watcher[Changed, bytes], list[int]]] = []
        pushed = 0
        for step, number in steps:
            if step == "push":
                pushed += 1
                queue.push(Changed(pushed, b"%0*d" % (number + 1, pushed)))
                for watcher, due in readers:
                    due.append(pushed)
                    is_within = watcher.queued_bytes <= queue_bytes or len(due) == 1
                    assert watcher.is_overflowed or is_within
            elif step == "join":
                readers.append((reader(queue, budget), []))
            elif readers:
                watcher, due = readers[number % len(readers)]
                if step == "close":
                    watcher.close()
                    readers.remove((watcher, due))
                    continue
                limit = 200 if step == "read" else None
                try:
                    got = numbers(await watcher.next_batch(0, limit))
                except WatcherOverflowError:
                    readers.remove((watcher, due))
                    watcher.close()
                    continue
                assert got == due[: len(got)]
                assert bool(got) == bool(due)
                if limit is None:
                    assert got == due
                del due[: len(got)]
            assert budget.used <= all_bytes
        for watcher, _ in readers:
            watcher.close()
        assert budget.used == 0

    asyncio.run(run())


@dataclass
class Outlet:
    """A client that was sent frames, and reads slowly if the test says so."""

    is_read: bool = True
    is_filled_by_a_write: bool = False
    sent: list[int] = field(default_factory=list)

    def is_ready(self) -> bool:
        return self.is_read

    def send(self, frames: Sequence[bytes]) -> None:
        self.sent += map(int, frames)
        self.is_read = not self.is_filled_by_a_write


async def waiting_with(
    outlet: Outlet, queue: SharedQueue[Changed, bytes], budget: QueueBudget
) -> tuple[Watcher[Changed, bytes], asyncio.Task[list[bytes]]]:
    """Return a reader with an outlet for 500 bytes, and its wait for frames."""
    watcher = reader(queue, budget)
    watcher.send_by(outlet, 500)
    task = asyncio.create_task(watcher.next_batch())
    await settle()
    return watcher, task


async def test_a_reader_that_waits_sends_by_its_outlet() -> None:
    budget, outlet = QueueBudget(10_000, 10_000), Outlet()
    queue = queue_of(budget)
    watcher, task = await waiting_with(outlet, queue, budget)
    queue.push(changed(1))
    queue.push(changed(2))
    await settle()
    assert (outlet.sent, task.done(), budget.used) == ([1, 2], False, 0)
    watcher.finish()
    assert await task == []


async def test_a_client_that_has_not_read_is_left_to_the_task() -> None:
    budget, outlet = QueueBudget(10_000, 10_000), Outlet(is_read=False)
    queue = queue_of(budget)
    _, task = await waiting_with(outlet, queue, budget)
    queue.push(changed(1))
    assert numbers(await task) == [1]
    assert outlet.sent == []


async def test_what_fills_a_connection_counts_until_the_next_batch() -> None:
    budget, outlet = QueueBudget(10_000, 10_000), Outlet(is_filled_by_a_write=True)
    queue = queue_of(budget)
    watcher, task = await waiting_with(outlet, queue, budget)
    queue.push(changed(1))
    assert await task == [], "the task waits for the client"
    assert (outlet.sent, budget.used) == ([1], 200)
    assert await watcher.next_batch(timeout_s=0) == []
    assert budget.used == 0


async def test_more_than_an_outlet_takes_at_once_is_left_to_the_task() -> None:
    budget, outlet = QueueBudget(10_000, 10_000), Outlet()
    queue = queue_of(budget)
    watcher, task = await waiting_with(outlet, queue, budget)
    for revision in (1, 2, 3):
        queue.push(changed(revision))
    assert numbers(await task) == [1, 2, 3]
    queue.push(changed(4))
    await settle()
    assert outlet.sent == [], "nothing overtakes what the task sends"
    assert numbers(await watcher.next_batch()) == [4]
