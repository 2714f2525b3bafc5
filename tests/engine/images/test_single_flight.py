from __future__ import annotations

import asyncio

import pytest

from moorage.engine.images.single_flight import SingleFlight


async def test_concurrent_callers_get_one_result() -> None:
    calls = 0
    gate = asyncio.Event()

    async def work() -> int:
        nonlocal calls
        calls += 1
        await gate.wait()
        return calls

    async with asyncio.TaskGroup() as tasks:
        single_flight: SingleFlight[int] = SingleFlight(tasks)
        asked = [asyncio.create_task(single_flight.join("key", work)) for _ in range(3)]
        other = asyncio.create_task(single_flight.join("other", work))
        await asyncio.wait(asked, timeout=0)
        gate.set()
        assert await asyncio.gather(*asked) == [2, 2, 2]
        assert await other == 2
        assert await single_flight.join("key", work) == 3


async def test_a_failure_is_everybodys_and_ends_nothing_else() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        raise ValueError("broken")

    async with asyncio.TaskGroup() as tasks:
        single_flight: SingleFlight[int] = SingleFlight(tasks)
        results = await asyncio.gather(
            *(single_flight.join("key", work) for _ in range(2)), return_exceptions=True
        )
    assert [str(error) for error in results] == ["broken", "broken"]


async def test_the_last_to_leave_waits_until_the_work_has_cleaned_up() -> None:
    began, cleaned = asyncio.Event(), asyncio.Event()

    async def work() -> int:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned.set()
        return 1

    async def quick() -> int:
        return 2

    async with asyncio.TaskGroup() as tasks:
        single_flight: SingleFlight[int] = SingleFlight(tasks)
        first, last = (asyncio.create_task(single_flight.join("key", work)) for _ in range(2))
        await began.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not cleaned.is_set()
        last.cancel()
        await asyncio.wait((last,), timeout=0)
        # A caller that comes meanwhile starts a new call.
        assert await single_flight.join("key", quick) == 2
        with pytest.raises(asyncio.CancelledError):
            await last
        assert cleaned.is_set()
