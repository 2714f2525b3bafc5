from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorage.scheduler.api_dispatcher import ApiDispatcher


@asynccontextmanager
async def running(calls: ApiDispatcher) -> AsyncIterator[None]:
    task = asyncio.create_task(calls.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_calls_of_one_pod_never_overtake_each_other() -> None:
    calls = ApiDispatcher(workers=4)
    done: list[str] = []
    gate, ran = asyncio.Event(), {name: asyncio.Event() for name in ("second", "other")}

    async def slow() -> None:
        await gate.wait()
        done.append("first")

    async def quick(name: str) -> None:
        done.append(name)
        ran[name].set()

    async with running(calls):
        calls.submit("a", slow)
        calls.submit("a", lambda: quick("second"))
        calls.submit("b", lambda: quick("other"))
        async with asyncio.timeout(5):
            await ran["other"].wait()
            gate.set()
            await ran["second"].wait()
    assert done == ["other", "first", "second"]


async def test_calls_in_flight_are_limited_to_the_workers_and_callers_wait() -> None:
    calls = ApiDispatcher(workers=2)
    gate, all_ran = asyncio.Event(), asyncio.Event()
    under_way = most = finished = 0

    async def call() -> None:
        nonlocal under_way, most, finished
        under_way += 1
        most = max(most, under_way)
        await gate.wait()
        under_way -= 1
        finished += 1
        if finished == 8:
            all_ran.set()

    async with running(calls):
        for number in range(8):
            calls.submit(f"p{number}", call)
        room = asyncio.create_task(calls.room())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not room.done()
        gate.set()
        async with asyncio.timeout(5):
            await room
            await all_ran.wait()
    assert most == 2
