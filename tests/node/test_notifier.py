from __future__ import annotations

import asyncio

from moorage.node.notifier import Notifier
from tests.clocks import FakeClock, settle


async def test_call_is_kept_until_it_is_received() -> None:
    wake = Notifier(FakeClock())
    wake.call()
    await wake.wait()
    waiting = asyncio.ensure_future(wake.wait())
    await settle()
    assert not waiting.done()
    wake.call()
    await waiting


async def test_the_moment_comes_without_a_call() -> None:
    clock = FakeClock()
    waiting = asyncio.ensure_future(Notifier(clock).wait(5))
    await settle()
    clock.advance(4)
    await settle()
    assert not waiting.done()
    clock.advance(1)
    await waiting


async def test_a_moment_that_has_passed_is_not_waited_for() -> None:
    await Notifier(FakeClock()).wait(0)


async def test_cancellation_leaves_no_waiter() -> None:
    clock = FakeClock()
    waiting = asyncio.ensure_future(Notifier(clock).wait(5))
    await settle()
    waiting.cancel()
    await settle()
    assert clock.next_s is None
