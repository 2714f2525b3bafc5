"""Work queues: each key once, one worker a key, failures later and later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from moorage.api.errors import ConflictError, StatusError
from moorage.wire.client.queue import WorkQueue
from moorage.wire.client.rest import UnreachableError
from tests.clocks import FakeClock


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(10):
        await asyncio.sleep(0)


class Work:
    """A queue at work under a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.queue: WorkQueue[str] = WorkQueue("test", clock=self.clock)
        self.done: list[str] = []
        self.failures: list[Exception] = []
        self.again_s: float | None = None

    async def reconcile(self, key: str) -> float | None:
        self.done.append(key)
        if self.failures:
            raise self.failures.pop(0)
        again_s, self.again_s = self.again_s, None
        return again_s

    async def after(self, seconds: float) -> list[str]:
        """What was done once that much time has passed."""
        self.clock.advance(seconds)
        await settle()
        return self.done


@asynccontextmanager
async def running(
    work: Work, reconcile: Callable[[str], Awaitable[float | None]] | None = None, workers: int = 1
) -> AsyncIterator[None]:
    task = asyncio.create_task(work.queue.run(reconcile or work.reconcile, workers=workers))
    try:
        await settle()
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def work() -> Work:
    return Work()


async def test_a_key_that_waits_is_there_once(work: Work) -> None:
    for key in ("a", "b", "a", "a"):
        work.queue.add(key)
    assert len(work.queue) == 2
    async with running(work):
        assert work.done == ["a", "b"]


async def test_a_key_is_never_worked_on_twice_at_once_and_no_change_is_lost(work: Work) -> None:
    active: set[str] = set()
    runs = 0
    release = asyncio.Event()

    async def slow(key: str) -> None:
        nonlocal runs
        assert key not in active
        active.add(key)
        runs += 1
        await release.wait()
        active.discard(key)

    work.queue.add("a")
    async with running(work, slow, workers=4):
        for _ in range(3):
            work.queue.add("a")
        await settle()
        assert runs == 1
        release.set()
        await settle()
        assert runs == 2


async def test_workers_share_different_keys(work: Work) -> None:
    active: set[str] = set()
    release = asyncio.Event()

    async def slow(key: str) -> None:
        active.add(key)
        await release.wait()

    for key in "abc":
        work.queue.add(key)
    async with running(work, slow, workers=2):
        assert active == {"a", "b"}
        release.set()


@pytest.mark.parametrize(
    "failure",
    [StatusError("no"), ConflictError("changed"), UnreachableError("gone"), KeyError("a bug")],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_failed_key_is_tried_again_later_and_later(work: Work, failure: Exception) -> None:
    work.failures = [failure] * 3
    work.queue.add("a")
    async with running(work):
        assert len(work.done) == 1
        assert len(await work.after(0.04)) == 1
        assert len(await work.after(0.03)) == 2
        assert len(await work.after(0.07)) == 2
        assert len(await work.after(0.06)) == 3
        assert len(await work.after(0.25)) == 4
        assert len(await work.after(600)) == 4


async def test_failed_key_delays_no_other(work: Work) -> None:
    work.failures = [StatusError("no")]
    work.queue.add("bad")
    work.queue.add("good")
    async with running(work):
        assert work.done == ["bad", "good"]


async def test_success_makes_the_next_failure_the_first(work: Work) -> None:
    work.failures = [StatusError("no")] * 5
    work.queue.add("a")
    async with running(work):
        await work.after(100)
        while work.failures:
            await work.after(100)
        await work.after(100)
        work.done.clear()
        work.failures = [StatusError("no")]
        work.queue.add("a")
        await settle()
        assert len(await work.after(0.07)) == 2


async def test_a_key_can_ask_to_be_looked_at_again(work: Work) -> None:
    work.again_s = 30
    work.queue.add("a")
    async with running(work):
        assert len(await work.after(29)) == 1
        assert len(await work.after(1)) == 2
        assert len(await work.after(600)) == 2


async def test_earlier_delayed_add_wins(work: Work) -> None:
    async with running(work):
        work.queue.add_after("a", 10)
        work.queue.add_after("a", 20)
        assert await work.after(10) == ["a"]
        assert await work.after(100) == ["a"]


async def test_an_earlier_appointment_replaces_a_later_one(work: Work) -> None:
    async with running(work):
        work.queue.add_after("a", 20)
        await settle()
        work.queue.add_after("a", 10)
        await settle()
        assert await work.after(10) == ["a"]
        assert await work.after(100) == ["a"]


async def test_an_appointment_in_the_past_is_now(work: Work) -> None:
    async with running(work):
        work.queue.add_after("a", 0)
        work.queue.add_after("b", -1)
        await settle()
        assert work.done == ["a", "b"]


async def test_one_worker_works_unless_more_are_asked_for(work: Work) -> None:
    active = most = 0

    async def slow(_: str) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await settle()
        active -= 1
        work.done.append("done")

    for key in "abc":
        work.queue.add(key)
    task = asyncio.create_task(work.queue.run(slow))
    async with asyncio.timeout(5):
        while len(work.done) < 3:
            await settle()
    task.cancel()
    await asyncio.wait([task])
    assert most == 1
