"""StartContainer with a fake runtime: records, failures, cancellation."""

from __future__ import annotations

import asyncio

import pytest

from moorage.engine.containers.lifecycle import remove_container, start_container
from moorage.engine.errors import FailedError, PreconditionError
from moorage.engine.handlers.adapters import AdapterError, Exit
from moorage.engine.records import Stage
from tests.clocks import START_NS, settle
from tests.engine.fakes import FIRST_PID
from tests.engine.parts import Bench, bench, place

__all__ = ["bench", "place"]

CREATED = ["create", "start"]


async def test_a_start_is_on_record_before_the_runtime_is_asked(bench: Bench) -> None:
    sandbox = await bench.pod()
    container = await bench.created(sandbox)
    await bench.new_events()
    bench.adapter.gates["create"] = asyncio.Event()
    starting = asyncio.create_task(start_container(bench.context, container))
    await settle()
    assert bench.on_disk("containers")[container.id]["stage"] == "starting"
    bench.clock.advance(5)
    bench.adapter.gates["create"].set()
    await starting
    assert bench.adapter.calls_of(container.id) == CREATED
    record = container.record
    assert (record.stage, record.pid) == (Stage.RUNNING, FIRST_PID)
    assert record.started_at_ns == START_NS + 5_000_000_000
    assert bench.on_disk("containers")[container.id]["pid"] == FIRST_PID
    assert await bench.new_events() == [("STARTED", container.id)]
    with pytest.raises(PreconditionError, match="is running: only a created one can be started"):
        await start_container(bench.context, container)
    task = bench.adapter.tasks[container.id].task
    assert (task.sandbox_id, task.bundle) == (sandbox.id, bench.paths.bundle(container.id))


@pytest.mark.parametrize("call", ["create", "start"])
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (AdapterError("no such command"), "no such command"),
        (OSError(13, "Permission denied", "/run/x"), "Permission denied"),
    ],
)
async def test_a_failed_start_is_undone_and_on_record(
    bench: Bench, call: str, failure: Exception, words: str
) -> None:
    container = await bench.created(await bench.pod())
    await bench.new_events()
    bench.adapter.failures[call] = failure
    expected = f"failed to start container '{container.id}': {words}"
    with pytest.raises(FailedError) as raised:
        await start_container(bench.context, container)
    assert str(raised.value) == expected
    assert bench.adapter.calls_of(container.id)[-1] == "delete"
    assert not bench.adapter.tasks
    record = container.record
    assert (record.stage, record.exit) == (Stage.EXITED, Exit(128, START_NS))
    assert (record.reason, record.message) == ("StartError", expected)
    assert bench.on_disk("containers")[container.id]["reason"] == "StartError"
    assert await bench.new_events() == [("STOPPED", container.id)]


async def test_a_failed_start_that_cannot_be_undone_is_still_the_first_failure(
    bench: Bench,
) -> None:
    container = await bench.created(await bench.pod())
    bench.adapter.failures = {"start": AdapterError("first"), "delete": AdapterError("second")}
    with pytest.raises(FailedError, match="first"):
        await start_container(bench.context, container)
    assert container.record.reason == "StartError"
    with pytest.raises(FailedError, match="cannot be removed: second"):
        await remove_container(bench.context, container)
    assert bench.on_disk("containers").keys() == {container.id}
    bench.adapter.failures.clear()
    await remove_container(bench.context, container)
    assert not bench.adapter.tasks
    assert not bench.on_disk("containers")


async def test_a_cancelled_start_is_undone(bench: Bench) -> None:
    container = await bench.created(await bench.pod())
    bench.adapter.gates["start"] = asyncio.Event()
    starting = asyncio.create_task(start_container(bench.context, container))
    await settle()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert container.record.stage is Stage.EXITED
    assert not bench.adapter.tasks
