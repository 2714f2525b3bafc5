from __future__ import annotations

import asyncio

import pytest

from moorage.node.pods.operations import Operations
from tests.clocks import FakeClock, settle


class Ends:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def operations(clock: FakeClock, ends: Ends | None = None) -> Operations:
    return Operations(clock, ends or Ends(), first_pause_s=1.0, longest_pause_s=4.0)


async def test_a_name_is_busy_until_its_work_has_ended() -> None:
    ends, gate = Ends(), asyncio.Event()
    ops = operations(FakeClock(), ends)

    async def work() -> None:
        await gate.wait()

    async with asyncio.TaskGroup() as tasks:
        ops.start("mount", work(), tasks)
        await settle()
        assert "mount" in ops
        assert not ops.may_start("mount")
        gate.set()
    assert ops.names == frozenset()
    assert ends.count == 1


async def test_work_cancelled_before_its_first_step_frees_its_name() -> None:
    ends = Ends()
    ops = operations(FakeClock(), ends)

    async def work() -> None:
        raise AssertionError("never begun")

    async with asyncio.TaskGroup() as tasks:
        ops.start("mount", work(), tasks)
        ops.cancel({"mount"})
        await settle()
        assert ops.names == frozenset()
    assert ends.count == 1


async def test_cancelled_work_counts_as_running_until_it_has_ended() -> None:
    ops, begun, may_end = operations(FakeClock()), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_end.wait()

    async with asyncio.TaskGroup() as tasks:
        ops.start("mount", work(), tasks)
        await begun.wait()
        ops.cancel({"mount"})
        await settle()
        assert "mount" in ops
        may_end.set()
        await settle()
        assert "mount" not in ops


@pytest.mark.failing_reconciles
async def test_work_that_breaks_is_tried_again_after_a_pause() -> None:
    clock = FakeClock()
    ops = operations(clock)

    async def work() -> None:
        raise RuntimeError("broken")

    async with asyncio.TaskGroup() as tasks:
        ops.start("mount", work(), tasks)
    ops.begin_step()
    assert not ops.may_start("mount")
    clock.advance(2)
    ops.begin_step()
    assert ops.may_start("mount")


def test_pauses_grow_up_to_the_longest() -> None:
    clock = FakeClock()
    ops = operations(clock)
    pauses = []
    for _ in range(5):
        ops.failed("pull")
        ops.begin_step()
        pause_s = ops.next_due_s()
        assert pause_s is not None
        pauses.append(pause_s)
    floors = [1, 2, 4, 4, 4]
    for pause_s, least_s in zip(pauses, floors, strict=True):
        assert least_s <= pause_s <= least_s * 1.2


def test_success_forgets_earlier_failures() -> None:
    clock = FakeClock()
    ops = operations(clock)
    ops.failed("pull")
    ops.failed("pull")
    ops.succeeded("pull")
    assert ops.may_start("pull")
    ops.failed("pull")
    ops.begin_step()
    pause_s = ops.next_due_s()
    assert pause_s is not None
    assert pause_s <= 1.2


def test_retry_now_ends_the_pause() -> None:
    ops = operations(FakeClock())
    ops.failed("sandbox")
    ops.retry_now("sandbox")
    assert ops.may_start("sandbox")


def test_what_falls_due_within_a_step_is_waited_for_not_lost() -> None:
    clock = FakeClock()
    ops = operations(clock)
    ops.postpone("refresh", 5.0)
    ops.begin_step()
    clock.advance(6)
    # The step still judges by the moment it began at; the wait it computes is over at once.
    assert not ops.may_start("refresh")
    assert ops.next_due_s() == 0.0
    ops.begin_step()
    assert ops.may_start("refresh")
    assert ops.next_due_s() is None


def test_a_moment_that_never_comes_is_not_waited_for_busily() -> None:
    ops = operations(FakeClock())
    ops.postpone("refresh", float("inf"))
    ops.begin_step()
    assert ops.next_due_s() == float("inf")
