"""Taking an engine off the machine: through it while it works, without it otherwise."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moorage.cluster.engine.plan import EnginePlan
from moorage.cluster.engine.teardown import TeardownSteps, sweep, tear_down
from moorage.engine.engine import running
from moorage.engine.options import EngineOptions
from tests.cluster.engine.engines import a_plan
from tests.running import until


async def nothing(*_: Any) -> None:
    """There is no network."""


STEPS = TeardownSteps(forget=lambda *_: None, remove_network=nothing)


@pytest.fixture
def plan(short_path: Path) -> EnginePlan:
    """A plan on a machine whose shared places are in the test's directory."""
    return a_plan(short_path)


def monitor(plan: EnginePlan) -> subprocess.Popen[bytes]:
    """A process that was given a place of the engine's, as conmon is."""
    argv = ["sh", "-c", "while :; do sleep 60; done", "conmon", str(plan.paths.engine.bundle("c1"))]
    process = subprocess.Popen(argv)
    # For a moment after execve(2) the kernel shows no command line yet.
    command_line = Path(f"/proc/{process.pid}/cmdline")
    until(lambda: command_line.read_bytes() != b"", "the monitor's command line is set")
    return process


async def test_an_engine_ends_its_pods_and_data_stays(plan: EnginePlan) -> None:
    async with running(plan.options):
        pass
    assert plan.paths.run.is_dir()
    engines: list[EngineOptions] = []
    await tear_down(plan, steps=replace(STEPS, run_engine=recorded(engines)))
    assert engines == [plan.options]
    assert not plan.paths.run.exists()
    assert plan.paths.engine.handlers.is_dir()


async def test_without_traces_no_engine_is_made(plan: EnginePlan) -> None:
    engines: list[EngineOptions] = []
    await tear_down(plan, steps=replace(STEPS, run_engine=recorded(engines)))
    assert not engines
    assert not plan.paths.data.exists()


def recorded(engines: list[EngineOptions]) -> Callable[[EngineOptions], Any]:
    """Return what runs engines, and notes the options of each."""

    def run(options: EngineOptions) -> Any:
        engines.append(options)
        return running(options)

    return run


async def test_teardown_works_if_the_engine_cannot_run(plan: EnginePlan) -> None:
    plan.paths.engine.prepare()
    with monitor(plan) as left, plan.paths.engine.lock.open("w") as lock:
        # As if another had the directories.
        fcntl.flock(lock, fcntl.LOCK_EX)
        await tear_down(plan, steps=STEPS)
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
    await tear_down(plan, steps=STEPS)
    assert shared.exists() == stays


def with_pod(plan: EnginePlan) -> Path:
    """The configuration of a bundle, which names its cgroup."""
    bundle = plan.paths.engine.bundle("c1")
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text('{"linux": {"cgroupsPath": "/m/pod/c1"}}')
    return bundle / "config.json"


async def test_a_sweep_removes_in_order_what_each_step_needs_no_more(plan: EnginePlan) -> None:
    done: list[Any] = []

    def step(name: str) -> Any:
        return lambda *arguments: done.append((name, *arguments))

    def awaited(name: str) -> Any:
        async def call(*arguments: Any) -> None:
            done.append((name, *arguments))

        return call

    names = ("remove_cgroups", "remove_mounts", "remove_directory", "forget")
    steps = TeardownSteps(
        **{name: step(name) for name in names},
        **{name: awaited(name) for name in ("end_processes", "remove_network")},
    )
    with_pod(plan)
    await sweep(plan.paths, plan.host, plan.network, frozenset({"/m", ""}), steps)
    assert done == [
        ("end_processes", plan.paths),
        ("remove_cgroups", {"/m", "/m/pod/c1"}, plan.host.cgroups),
        ("remove_mounts", plan.paths.data),
        ("remove_directory", plan.paths.run),
        ("forget", plan.network, ("c1",)),
        ("remove_network", plan.network, plan.host),
    ]


async def test_cgroups_of_pods_and_of_the_node_agent_are_swept(plan: EnginePlan) -> None:
    swept: list[Any] = []
    configuration = with_pod(plan)

    class Ending:
        async def remove_all(self) -> None:
            # The engine removes its bundles, which name the cgroups.
            configuration.unlink()

    engine: Any = Ending()
    steps = replace(
        STEPS,
        run_engine=lambda _: nullcontext(engine),
        remove_cgroups=lambda cgroups, _: swept.append(cgroups),
    )
    await tear_down(plan, cgroup_root="/m", steps=steps)
    assert not configuration.exists()
    assert swept == [{"/m", "/m/pod/c1"}]


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
    plan: EnginePlan, short_path: Path,
    names: list[str] | None, is_unmounted: bool, calls: int, stays: bool,
) -> None:  # fmt: skip
    markers: list[Path] = []

    def unmount(marker: Path) -> None:
        markers.append(marker)
        if is_unmounted:
            marker.unlink(missing_ok=True)

    shared = short_path / "shared"
    if names is not None:
        shared.mkdir()
        for name in names:
            (shared / name).mkdir() if name.endswith("/") else (shared / name).touch()
    await tear_down(plan, steps=replace(STEPS, unmount_hugetlb=unmount))
    assert markers == [shared / "hugetlb"] * calls
    assert shared.exists() == stays
