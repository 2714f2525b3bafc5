"""Silence, measured by a clock that the test moves."""

from __future__ import annotations

import asyncio

from moorage.wire.streaming.connection import IdleTimer
from tests.clocks import FakeClock, settle


class Timed:
    """A timer of ten seconds that runs."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.timer = IdleTimer(10, self.clock)
        self._expired = asyncio.create_task(self.timer.expired())

    async def after(self, seconds: float) -> bool:
        """Whether it has expired that much later."""
        await settle()
        self.clock.advance(seconds)
        await settle()
        return self._expired.done()


async def test_it_expires_after_so_much_silence() -> None:
    timed = Timed()
    assert not await timed.after(9.9)
    assert await timed.after(0.1)


async def test_any_traffic_restarts_the_timer() -> None:
    timed = Timed()
    assert not await timed.after(9)
    timed.timer.touch()
    assert not await timed.after(9)
    assert await timed.after(1)


async def test_it_can_be_made_less_patient_but_not_more() -> None:
    timed = Timed()
    timed.timer.tighten(60)
    assert not await timed.after(9)
    timed.timer.tighten(2)
    assert not await timed.after(1)
    assert await timed.after(1)


async def test_less_patience_counts_from_now_also_while_it_waits() -> None:
    timed = Timed()
    assert not await timed.after(1)
    timed.timer.tighten(2)
    assert not await timed.after(1.9)
    assert await timed.after(0.1)


async def test_a_timer_that_waits_costs_nothing_until_its_time() -> None:
    timed = Timed()
    assert not await timed.after(1)
    timed.timer.tighten(5)
    await settle()
    # It sleeps again rather than looking in every turn of the event loop.
    assert timed.clock.next_s == 5
    slept = timed.clock.slept
    await settle()
    assert timed.clock.slept == slept
    assert not await timed.after(4)
    assert await timed.after(1)
