"""A task whose virtual machine has ended on its own, by a shim that only misses its files."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.shim.adapter import ShimAdapter
from moorage.engine.handlers.adapters.shim.keeper import TaskDirectory
from moorage.engine.handlers.adapters.shim.program import TaskOptions
from moorage.engine.handlers.definition import CgroupDriver, ShimOptions
from tests.engine.handlers.adapters.shim.test_delete import REFUSED, RUNNING, STOPPED, Case, case

__all__ = ["case"]

GONE = (REFUSED, "open /run/vc/sbs/t1: No such file or directory")


@pytest.fixture
async def adapter(case: Case, tmp_path: Path) -> AsyncIterator[ShimAdapter]:
    directory = TaskDirectory(case.root)
    directory.make()
    directory.write_record(case.record)
    options = TaskOptions(
        ShimOptions("io.containerd.x.v2"), CgroupDriver.CGROUPFS, "/bin", tmp_path / "state"
    )
    async with ShimAdapter(case.program, options) as adapter:
        yield adapter


async def test_it_is_not_alive_and_has_an_exit(case: Case, adapter: ShimAdapter) -> None:
    case.replies |= {"State": GONE, "Wait": GONE, "Kill": GONE}
    assert not await adapter.is_alive(case.task())
    await adapter.kill(case.task(), signal.SIGTERM)
    how = await adapter.exit_of(case.task())
    assert how is not None
    assert how.code == 255
    assert case.was_deleted_by_program


@pytest.mark.parametrize("state", [STOPPED, GONE])
async def test_a_signal_to_what_has_ended_is_no_error(
    case: Case, adapter: ShimAdapter, state: pb.StateResponse
) -> None:
    case.replies |= {"State": state, "Kill": (REFUSED, "the agent is dead")}
    await adapter.kill(case.task(), signal.SIGTERM)


async def test_a_signal_that_a_live_task_does_not_get_is_an_error(
    case: Case, adapter: ShimAdapter
) -> None:
    """Such as by a runtime that was removed: the task is there, and its runtime is not."""
    case.replies |= {"State": RUNNING, "Kill": (REFUSED, "exec runc: no such file or directory")}
    with pytest.raises(AdapterError, match="no such file"):
        await adapter.kill(case.task(), signal.SIGTERM)


async def test_other_errors_stay_errors(case: Case, adapter: ShimAdapter) -> None:
    case.replies["State"] = (REFUSED, "the agent does not answer")
    calls: list[Callable[..., object]] = [adapter.is_alive, adapter.exit_of]
    for call in calls:
        with pytest.raises(AdapterError, match="the agent does not answer"):
            await call(case.task())  # type: ignore[misc]
