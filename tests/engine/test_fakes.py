"""The fake runtime keeps what `Adapter` promises, as far as it can without processes."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from moorage.engine.handlers.adapters import STDOUT, Task, TaskNotFoundError
from tests.clocks import settle
from tests.engine.fakes import FakeAdapter

TASK = Task(id="c1", bundle=Path("/b"), sandbox_id="s1")


@pytest.fixture
async def adapter() -> FakeAdapter:
    made = FakeAdapter()
    await made.create(TASK)
    return made


async def test_a_task_runs_and_its_end_is_kept(adapter: FakeAdapter) -> None:
    assert await adapter.is_alive(TASK)
    assert await adapter.exit_of(TASK) is None
    await adapter.start(TASK)
    waiting = [asyncio.create_task(adapter.wait(TASK)) for _ in range(2)]
    await settle()
    await adapter.kill(TASK, signal.SIGTERM)
    assert [(await task).code for task in waiting] == [143, 143]
    assert (await adapter.wait(TASK)).code == 143
    assert not await adapter.is_alive(TASK)
    # A signal after the end changes nothing.
    await adapter.kill(TASK, signal.SIGKILL)
    assert (await adapter.wait(TASK)).code == 143


async def test_a_deletion_at_any_stage_is_whole_and_can_be_repeated(adapter: FakeAdapter) -> None:
    await adapter.start(TASK)
    waiting = asyncio.create_task(adapter.wait(TASK))
    await settle()
    for _ in range(2):
        await adapter.delete(TASK)
        assert not await adapter.is_alive(TASK)
    assert (await waiting).code == 137
    for call in (adapter.start(TASK), adapter.wait(TASK), adapter.kill(TASK, signal.SIGTERM)):
        with pytest.raises(TaskNotFoundError):
            await call


async def test_a_second_command_has_streams_and_is_ended_by_leaving_it(
    adapter: FakeAdapter,
) -> None:
    adapter.programs.append([(STDOUT, b"out"), 7])
    async with await adapter.exec(TASK, {}, has_stdin=False, has_terminal=False) as process:
        assert await process.read() == (STDOUT, b"out")
        assert await process.read() is None
        assert await process.wait() == 7
    assert adapter.processes_started[0].is_killed
    async with await adapter.attach(TASK) as streams:
        await streams.write(b"in")
        await streams.end_input()
        assert await streams.read() == (STDOUT, b"in")
        assert await streams.read() is None
