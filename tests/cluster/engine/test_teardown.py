"""Taking an engine off the machine: through it while it works, without it otherwise."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.engine import teardown
from moorage.cluster.engine.plan import EnginePlan
from moorage.cluster.engine.teardown import sweep, tear_down
from moorage.engine.engine import running
from moorage.engine.options import EngineOptions
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


async def test_a_sweep_removes_in_order_what_each_step_needs_no_more(
    plan: EnginePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = []

    def step(name: str, *, is_async: bool = False) -> None:
        async def call(*arguments: Any) -> None:
            steps.append((name, *arguments))

        plain = lambda *arguments: steps.append((name, *arguments))  # noqa: E731
        monkeypatch.setattr(teardown, name, call if is_async else plain)

    for name in ("end_processes", "remove"):
        step(name, is_async=True)
    for name in ("remove_cgroups", "remove_mounts", "remove_directory", "forget"):
        step(name)
    bundle = plan.paths.engine.bundle("c1")
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text('{"linux": {"cgroupsPath": "/m/pod/c1"}}')
    await sweep(plan.paths, plan.host, plan.network, frozenset({"/m", ""}))
    assert steps == [
        ("end_processes", plan.paths),
        ("remove_cgroups", {"/m", "/m/pod/c1"}, plan.host.cgroups),
        ("remove_mounts", plan.paths.data),
        ("remove_directory", plan.paths.run),
        ("forget", plan.network, ("c1",)),
        ("remove", plan.network, plan.host),
    ]


async def test_cgroups_of_pods_and_of_the_node_agent_are_swept(
    plan: EnginePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[Any] = []

    async def keep(*arguments: Any) -> None:
        swept.append(arguments)

    async def end_by_engine(_: EnginePlan) -> None:
        # The engine removes its bundles, which name the cgroups.
        (bundle / "config.json").unlink()

    monkeypatch.setattr(teardown, "sweep", keep)
    monkeypatch.setattr(teardown, "_end_by_engine", end_by_engine)
    bundle = plan.paths.engine.bundle("c1")
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text('{"linux": {"cgroupsPath": "/m/pod/c1"}}')
    await tear_down(plan, cgroup_root="/m")
    assert swept == [(plan.paths, plan.host, plan.network, {"/m", "/m/pod/c1"})]


@pytest.mark.parametrize(
    ("names", "is_unmounted", "calls", "stays"),
    [
        # The last cluster moves the hugetlb controller back.
        (["hugetlb"], True, 1, False),
        (["hugetlb"], False, 1, True),
        (["hugetlb", "other-cluster/"], True, 0, True),
        ([], True, 1, False),
        (None, True, 0, False),
    ],
)
async def test_the_last_cluster_moves_the_hugetlb_controller_back(
    plan: EnginePlan, short_path: Path, monkeypatch: pytest.MonkeyPatch,
    names: list[str] | None, is_unmounted: bool, calls: int, stays: bool,
) -> None:  # fmt: skip
    markers: list[Path] = []

    def unmount(marker: Path) -> None:
        markers.append(marker)
        if is_unmounted:
            marker.unlink(missing_ok=True)

    monkeypatch.setattr(teardown, "unmount_hugetlb_v1", unmount)
    shared = short_path / "shared"
    if names is not None:
        shared.mkdir()
        for name in names:
            (shared / name).mkdir() if name.endswith("/") else (shared / name).touch()
    await tear_down(plan)
    assert markers == [shared / "hugetlb"] * calls
    assert shared.exists() == stays
