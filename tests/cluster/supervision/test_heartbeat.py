"""Beats on the supervisor's pipe."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from moorage.cluster.supervision.heartbeat import send_heartbeats, with_heartbeats
from moorage.cluster.supervision.readiness import notify_ready
from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE, READY_MESSAGE


@pytest.fixture
def environment() -> dict[str, str]:
    return {}


@pytest.fixture
def pipe(environment: dict[str, str]) -> Iterator[int]:
    """The supervisor's end."""
    read_end, write_end = os.pipe()
    environment[NOTIFY_VARIABLE] = str(write_end)
    yield read_end
    os.close(read_end)


async def test_the_first_word_on_the_pipe_is_that_the_part_is_ready(
    pipe: int, environment: dict[str, str]
) -> None:
    os.set_blocking(pipe, False)
    beating = asyncio.create_task(send_heartbeats(0.01, environment))
    await asyncio.sleep(0.05)
    with pytest.raises(BlockingIOError):
        os.read(pipe, 100)
    notify_ready(environment)
    output = b""
    async with asyncio.timeout(10):
        while output.count(b".") < 3:
            await asyncio.sleep(0.01)
            output += os.read(pipe, 100)
    assert output.startswith(READY_MESSAGE)
    beating.cancel()
    await asyncio.wait([beating])
    assert os.read(pipe, 100).strip(b".") == b""
    assert os.read(pipe, 100) == b""


@pytest.mark.usefixtures("pipe")
async def test_a_full_pipe_holds_nothing_up(environment: dict[str, str]) -> None:
    beating = asyncio.create_task(send_heartbeats(0.01, environment))
    await asyncio.sleep(0)
    descriptor = os.dup(int(environment[NOTIFY_VARIABLE]))
    notify_ready(environment)
    os.write(descriptor, b"x" * 64 * 1024)
    with pytest.raises(BlockingIOError):
        os.write(descriptor, b"x")
    await asyncio.sleep(0.05)
    assert not beating.done()
    os.close(descriptor)
    beating.cancel()


async def test_the_beats_end_with_the_supervisor(environment: dict[str, str]) -> None:
    read_end, write_end = os.pipe()
    environment[NOTIFY_VARIABLE] = str(write_end)
    beating = asyncio.create_task(send_heartbeats(0.01, environment))
    await asyncio.sleep(0)
    notify_ready(environment)
    os.close(read_end)
    async with asyncio.timeout(10):
        await beating


async def test_without_a_supervisor_there_is_nothing_to_do(environment: dict[str, str]) -> None:
    async with asyncio.timeout(10):
        await send_heartbeats(0.01, environment)


async def test_a_part_beats_while_it_works_and_not_longer(
    pipe: int, environment: dict[str, str]
) -> None:
    os.set_blocking(pipe, False)
    output = b""

    async def work() -> None:
        nonlocal output
        notify_ready(environment)
        async with asyncio.timeout(10):
            while output.count(b".") < 2:
                await asyncio.sleep(0.01)
                output += os.read(pipe, 100)
        raise KeyError

    with pytest.raises(KeyError):
        await with_heartbeats(work(), 0.01, environment)
    assert output.startswith(READY_MESSAGE)
    await asyncio.sleep(0)
    assert os.read(pipe, 100).strip(b".") == b""
    # Both copies are closed.
    assert os.read(pipe, 100) == b""
