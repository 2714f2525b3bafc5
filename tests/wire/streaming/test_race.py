"""The first to end ends the others."""

from __future__ import annotations

import asyncio

import pytest

from moorage.wire.streaming.race import first_to_end


class Runner:
    """Runs until `finish` is set, and knows whether it was cancelled."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()
        self.was_cancelled = False

    async def run(self) -> None:
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def at_once() -> None:
    return None


async def failing() -> None:
    raise ConnectionResetError("gone")


async def test_the_others_are_cancelled_and_waited_for() -> None:
    runner = Runner()
    await first_to_end(runner.run(), at_once())
    assert runner.was_cancelled


async def test_error_is_raised_after_the_rest_has_stopped() -> None:
    runner = Runner()
    with pytest.raises(ConnectionResetError):
        await first_to_end(runner.run(), failing())
    assert runner.was_cancelled


async def test_a_cancellation_reaches_all() -> None:
    runners = [Runner(), Runner()]
    race = asyncio.create_task(first_to_end(*(runner.run() for runner in runners)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    race.cancel()
    with pytest.raises(asyncio.CancelledError):
        await race
    assert all(runner.was_cancelled for runner in runners)
