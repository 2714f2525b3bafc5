"""StopContainer with a fake runtime: signals, grace periods, failures."""

from __future__ import annotations

import asyncio
import signal

import pytest

from moorage.engine.containers.lifecycle import remove_container, start_container, stop_container
from moorage.engine.errors import FailedError, TimeLimitError
from moorage.engine.handlers.adapters import AdapterError, Exit, TaskNotFoundError
from moorage.engine.records import Stage
from tests.clocks import settle
from tests.engine.fakes import FINISHED_NS
from tests.engine.parts import DATA, Bench, bench, place

__all__ = ["bench", "place"]

CREATED = ["create", "start"]


async def test_a_stop_sends_the_containers_signal_and_waits(bench: Bench) -> None:
    container = await bench.running(await bench.pod())
    await stop_container(bench.context, container, 60)
    assert container.record.exit == Exit(128 + signal.SIGUSR1, FINISHED_NS)
    assert bench.adapter.calls_of(container.id)[:3] == [*CREATED, ("kill", "SIGUSR1")]
    await settle()
    asked = len(bench.adapter.calls)
    await stop_container(bench.context, container, 60)
    assert len(bench.adapter.calls) == asked


async def test_a_container_without_a_signal_of_its_own_gets_sigterm(bench: Bench) -> None:
    container = await bench.running(await bench.pod(), image=DATA, command=["/other"])
    await stop_container(bench.context, container, 60)
    assert bench.adapter.calls_of(container.id)[2] == ("kill", "SIGTERM")


async def test_no_grace_is_sigkill_at_once(bench: Bench) -> None:
    container = await bench.running(await bench.pod())
    await stop_container(bench.context, container, 0)
    assert bench.adapter.calls_of(container.id)[2] == ("kill", "SIGKILL")
    assert container.record.exit == Exit(137, FINISHED_NS)


@pytest.mark.slow
async def test_one_signal_for_several_stops_and_then_sigkill(bench: Bench) -> None:
    bench.adapter.is_obeying = False
    container = await bench.running(await bench.pod())
    await asyncio.gather(*(stop_container(bench.context, container, 1) for _ in range(3)))
    kills = [call for call in bench.adapter.calls_of(container.id) if call[0] == "kill"]
    assert kills[0] == ("kill", "SIGUSR1")
    assert set(kills[1:]) == {("kill", "SIGKILL")}
    assert container.record.stage is Stage.EXITED


async def test_a_stop_waits_for_a_start_that_is_under_way(bench: Bench) -> None:
    container = await bench.created(await bench.pod())
    bench.adapter.gates["start"] = asyncio.Event()
    starting = asyncio.create_task(start_container(bench.context, container))
    await settle()
    stopping = asyncio.create_task(stop_container(bench.context, container, 0))
    await settle()
    assert not stopping.done()
    bench.adapter.gates["start"].set()
    await asyncio.gather(starting, stopping)
    assert container.record.exit == Exit(137, FINISHED_NS)


async def test_what_does_not_end_after_sigkill_is_an_error(bench: Bench) -> None:
    container = await bench.running(await bench.pod())
    bench.adapter.is_immortal = True
    with pytest.raises(TimeLimitError, match=r"is still running 0\.01 s after SIGKILL"):
        await stop_container(bench.context, container, 0, 0.01)
    with pytest.raises(TimeLimitError):
        await remove_container(bench.context, container, 0.01)
    assert container.is_running
    assert bench.on_disk("containers").keys() == {container.id}


async def test_a_signal_that_cannot_be_sent_is_an_error_unless_the_task_is_gone(
    bench: Bench,
) -> None:
    container = await bench.running(await bench.pod())
    bench.adapter.failures["kill"] = AdapterError("no way")
    with pytest.raises(FailedError, match=f"container '{container.id}' cannot be signalled: no"):
        await stop_container(bench.context, container, 0)
    bench.adapter.failures["kill"] = TaskNotFoundError("gone")
    with pytest.raises(TimeLimitError):
        await stop_container(bench.context, container, 0, 0.01)
    bench.end(container, 9)
    await stop_container(bench.context, container, 0)
    assert container.record.exit == Exit(9, FINISHED_NS)
