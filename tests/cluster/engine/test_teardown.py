"""Taking an engine off the machine: through it while it works, without it otherwise."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.engine import teardown
from moorage.cluster.engine.plan import EnginePlan
from moorage.cluster.engine.teardown import tear_down
from moorage.engine import EngineOptions, running
from tests.cluster.engine.engines import a_plan
from tests.running import until


@pytest.fixture
def plan(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnginePlan:
    """A plan on a machine whose shared places are in the test's directory."""
    monkeypatch.setattr(teardown, "RUN", short_path / "shared")
    monkeypatch.setattr(teardown, "HUGETLB_MARKER", short_path / "shared" / "hugetlb")

    async def nothing(*_: Any) -> None:
        """There is no network."""

    monkeypatch.setattr(teardown, "remove", nothing)
    monkeypatch.setattr(teardown, "forget", lambda *_: None)
    return a_plan(short_path)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[EngineOptions]:
    """The options of every engine that was asked to end pods."""
    asked: list[EngineOptions] = []

    def noted(options: EngineOptions) -> Any:
        asked.append(options)
        return running(options)

    monkeypatch.setattr(teardown, "running", noted)
    return asked


def monitor(plan: EnginePlan) -> subprocess.Popen[bytes]:
    """A process that was given a place of the engine's, as conmon is."""
    argv = ["sh", "-c", "while :; do sleep 60; done", "conmon", str(plan.paths.engine.bundle("c1"))]
    process = subprocess.Popen(argv)
    # For a moment after execve(2) the kernel shows no command line yet.
    command_line = Path(f"/proc/{process.pid}/cmdline")
    until(lambda: command_line.read_bytes() != b"", "the monitor's command line is set")
    return process


async def test_an_engine_ends_its_pods_and_data_stays(
    plan: EnginePlan, engines: list[EngineOptions]
) -> None:
    async with running(plan.options):
        pass
    assert plan.paths.run.is_dir()
    await tear_down(plan)
    assert engines == [plan.options]
    assert not plan.paths.run.exists()
    assert plan.paths.engine.handlers.is_dir()


async def test_without_traces_no_engine_is_made(
    plan: EnginePlan, engines: list[EngineOptions]
) -> None:
    await tear_down(plan)
    assert not engines
    assert not plan.paths.data.exists()


async def test_teardown_works_if_the_engine_cannot_run(plan: EnginePlan) -> None:
    plan.paths.engine.prepare()
    with monitor(plan) as left, plan.paths.engine.lock.open("w") as lock:
        # As if another had the directories.
        fcntl.flock(lock, fcntl.LOCK_EX)
        await tear_down(plan)
        assert left.wait(10) == -9
    assert not plan.paths.run.exists()


@pytest.mark.parametrize(
    ("left", "stays"), [(None, False), ("other-cluster/", True), ("stray-file", True)]
)
async def test_what_clusters_share_goes_with_the_last_of_them(
    plan: EnginePlan, short_path: Path, left: str | None, stays: bool
) -> None:
    shared = short_path / "shared"
    shared.mkdir()
    if left is not None:
        place = shared / left
        place.mkdir() if left.endswith("/") else place.touch()
    await tear_down(plan)
    assert shared.exists() == stays
