"""An engine's life, with a stand-in for containerd in processes of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from moorage.api.clock import SystemClock
from moorage.cluster.containerd import EngineStartError, PrivateContainerd, life
from moorage.cluster.containerd.life import _environment
from moorage.cluster.containerd.plan import EnginePlan
from moorage.cluster.containerd.sweep import end_engine
from moorage.linux.process import state
from tests.cluster.containerd.engines import a_plan, engine_paths
from tests.cluster.containerd.fake_containerd import BEHAVIOUR

Starter = Callable[[EnginePlan], Awaitable[PrivateContainerd]]


@pytest.fixture
async def start(short_path: Path) -> AsyncIterator[Starter]:
    """Starts engines; none of them outlives the test."""

    async def started(plan: EnginePlan) -> PrivateContainerd:
        engine = PrivateContainerd(plan, SystemClock())
        await engine.start()
        return engine

    yield started
    await end_engine(engine_paths(short_path))


def starts(root: Path) -> int:
    return engine_paths(root).log.read_text().count("started")


async def test_it_starts_answers_and_stops(short_path: Path, start: Starter) -> None:
    engine = await start(a_plan(short_path))
    paths = engine.plan.paths
    assert not engine.is_adopted
    assert engine.pid
    assert not paths.notifications.exists()
    assert (paths.registries / "docker.io" / "hosts.toml").exists()
    await engine.stop()
    assert engine.pid is None
    assert not paths.record.exists()
    assert "stopped" in paths.log.read_text()
    await engine.stop()


async def test_an_engine_that_runs_is_taken_over(short_path: Path, start: Starter) -> None:
    first = await start(a_plan(short_path))
    second = await start(a_plan(short_path))
    assert second.is_adopted
    assert second.pid == first.pid
    assert starts(short_path) == 1


async def test_one_of_another_configuration_is_replaced(short_path: Path, start: Starter) -> None:
    first = await start(a_plan(short_path))
    second = await start(a_plan(short_path, log_level="debug"))
    assert not second.is_adopted
    assert second.pid != first.pid
    assert "stopped" in second.plan.paths.log.read_text()


@pytest.mark.parametrize("record", [None, b"", b'{"process": {"pid": 1', b"[]", b"\xff"])
async def test_one_whose_record_was_lost_makes_room(
    short_path: Path, start: Starter, record: bytes | None
) -> None:
    first = await start(a_plan(short_path))
    path = first.plan.paths.record
    if record is None:
        path.unlink()
    else:
        path.write_bytes(record)
    second = await start(a_plan(short_path))
    assert not second.is_adopted
    assert second.pid != first.pid
    assert first.pid is not None
    assert state(first.pid) in ("", "Z")


async def test_a_record_of_a_process_that_is_no_more_is_stale(
    short_path: Path, start: Starter
) -> None:
    first = await start(a_plan(short_path))
    await end_engine(first.plan.paths)
    second = await start(a_plan(short_path))
    assert not second.is_adopted


async def test_one_that_dies_says_why(
    short_path: Path, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BEHAVIOUR, "dies")
    with pytest.raises(EngineStartError, match=r"exit status 7; its log .* no room"):
        await start(a_plan(short_path))


async def test_one_that_says_nothing_is_ended(
    short_path: Path, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(BEHAVIOUR, "mute")
    monkeypatch.setattr(life, "READY_DEADLINE_S", 0.5)
    with pytest.raises(EngineStartError, match=r"not ready after 0\.5 s"):
        await start(a_plan(short_path))
    assert not engine_paths(short_path).record.exists()


async def test_one_that_is_killed_is_started_again(short_path: Path, start: Starter) -> None:
    engine = await start(a_plan(short_path))
    before = engine.pid
    assert before is not None
    watching = asyncio.ensure_future(engine.supervise())
    os.kill(before, 9)
    async with asyncio.timeout(20):
        # Nothing announces the new one to a test.
        while engine.pid in (None, before):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    watching.cancel()
    await asyncio.wait((watching,))
    assert starts(short_path) == 2


async def test_a_long_log_is_put_aside(
    short_path: Path, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = engine_paths(short_path).log
    log.parent.mkdir()
    log.write_text("old\n")
    monkeypatch.setattr(life, "_LOG_LIMIT_BYTES", 3)
    await start(a_plan(short_path))
    assert log.with_suffix(".old").read_text() == "old\n"
    assert "old" not in log.read_text()


def test_what_is_this_process_own_is_not_passed_on(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NOTIFY_SOCKET", "MOORAGE_NOTIFY_FD", "LISTEN_FDS", "KEPT"):
        monkeypatch.setenv(name, "ours")
    plan = a_plan(short_path)
    environment = _environment(plan)
    assert environment["KEPT"] == "ours"
    assert environment["NOTIFY_SOCKET"] == str(plan.paths.notifications)
    assert environment["PATH"] == plan.host.path
    assert not {"MOORAGE_NOTIFY_FD", "LISTEN_FDS"} & environment.keys()
