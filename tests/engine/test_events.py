"""Events: kept while there is no listener, sent to all, and no memory for a slow listener."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from moorage.engine.errors import ExhaustedError
from moorage.engine.events import Events
from moorage.wire.cri import pb
from tests.clocks import settle


def event(number: int) -> pb.ContainerEventResponse:
    return pb.ContainerEventResponse(container_id=str(number))


async def take(events: Events, count: int) -> list[int]:
    """Return the first events that a new listener receives."""
    received: list[int] = []
    async with asyncio.timeout(5), aclosing(events.listen()) as stream:  # type: ignore[type-var]
        async for container in stream:
            received.append(int(container.container_id))
            if len(received) == count:
                break
    return received


async def test_events_without_listener_are_delivered_first_and_once() -> None:
    events = Events()
    for number in range(3):
        events.publish(event(number))
    assert await take(events, 3) == [0, 1, 2]
    listening = asyncio.create_task(take(events, 1))
    await settle()
    events.publish(event(3))
    assert await listening == [3]


async def test_only_the_latest_are_kept() -> None:
    events = Events()
    for number in range(1500):
        events.publish(event(number))
    assert await take(events, 1000) == list(range(500, 1500))


async def test_every_listener_receives_everything() -> None:
    events = Events()
    listeners = [asyncio.create_task(take(events, 50)) for _ in range(3)]
    await settle()
    for number in range(50):
        events.publish(event(number))
    assert await asyncio.gather(*listeners) == [list(range(50))] * 3


async def test_a_listener_that_falls_behind_loses_the_stream_and_no_other_does() -> None:
    events = Events()
    stream = events.listen()
    first = asyncio.ensure_future(anext(stream))
    await settle()
    quick = asyncio.create_task(take(events, 10_500))
    await settle()
    for number in range(10_500):
        events.publish(event(number))
        if number % 500 == 0:
            await settle(2)
    await first
    for _ in range(10_000):
        await anext(stream)
    with pytest.raises(ExhaustedError, match="then reconnect"):
        await anext(stream)
    assert await quick == list(range(10_500))


async def test_a_listener_that_leaves_is_forgotten() -> None:
    events = Events()
    listening = asyncio.create_task(take(events, 1))
    await settle()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    events.publish(event(7))
    assert await take(events, 1) == [7]
