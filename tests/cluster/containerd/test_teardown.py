"""Taking an engine off the machine: through it while it works, without it otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.api.clock import SystemClock
from moorage.cluster.containerd import PrivateContainerd, tear_down, teardown
from moorage.cluster.containerd.plan import EnginePlan
from tests.cluster.containerd.engines import a_plan
from tests.cluster.containerd.fake_containerd import BEHAVIOUR


@pytest.fixture
def plan(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnginePlan]:
    """A plan on a machine whose shared places are in the test's folder."""
    monkeypatch.setattr(teardown, "RUN", short_path / "shared")
    monkeypatch.setattr(teardown, "HUGETLB_MARKER", short_path / "shared" / "hugetlb")

    async def nothing(*_: Any) -> None:
        """There is no network."""

    monkeypatch.setattr(teardown, "remove", nothing)
    monkeypatch.setattr(teardown, "forget", lambda *_: None)
    return a_plan(short_path)


def said(plan: EnginePlan) -> list[str]:
    return plan.paths.log.read_text().splitlines()


async def take_down(plan: EnginePlan, **options: Any) -> None:
    await tear_down(plan, SystemClock(), **options)
    assert not plan.paths.run.exists()


async def test_pods_end_before_the_engine(plan: EnginePlan) -> None:
    await PrivateContainerd(plan, SystemClock()).start()
    await take_down(plan)
    lines = said(plan)
    assert lines.count("started") == 1
    assert {"stop s1", "remove s1", "stop s2"} <= set(lines)
    # One that cannot be stopped is left to the sweep.
    assert "remove s2" not in lines
    assert lines[-1] == "stopped"
    assert plan.paths.configuration.exists()


async def test_a_stopped_engine_is_started_for_its_sandboxes(plan: EnginePlan) -> None:
    (plan.paths.bundles / "s1").mkdir(parents=True)
    (plan.paths.bundles / "s1" / "config.json").write_text('{"linux": {"cgroupsPath": "/x/s1"}}')
    await take_down(plan, removes_data=True)
    assert "remove s1" in said(plan)
    assert not plan.paths.data.exists()


async def test_without_traces_no_engine_is_started(plan: EnginePlan) -> None:
    await take_down(plan)
    assert not plan.paths.log.exists()


@pytest.mark.parametrize("behaviour", ["dies", "hung"])
async def test_an_engine_that_does_not_work_is_no_obstacle(
    plan: EnginePlan, monkeypatch: pytest.MonkeyPatch, behaviour: str
) -> None:
    monkeypatch.setenv(BEHAVIOUR, behaviour)
    plan.paths.run.mkdir(parents=True)
    plan.paths.record.write_text("{}")
    await take_down(plan)
    assert "remove s1" not in said(plan)


@pytest.mark.parametrize(
    ("left", "stays"), [(None, False), ("other-cluster/", True), ("stray-file", True)]
)
async def test_what_clusters_share_goes_with_the_last_of_them(
    plan: EnginePlan, left: str | None, stays: bool
) -> None:
    shared = teardown.RUN
    shared.mkdir()
    if left is not None:
        place = shared / left
        place.mkdir() if left.endswith("/") else place.touch()
    await take_down(plan)
    assert shared.exists() == stays
