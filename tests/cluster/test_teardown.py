"""What `moor down` takes off a machine for each kind of cluster, and in which order."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.cluster import teardown
from moorage.cluster.engine.paths import cgroup_root
from moorage.cluster.engine.plan import NoEngineError
from moorage.cluster.engine.usage import engine_in_use, note_engine
from moorage.cluster.errors import StopError
from moorage.cluster.layout import Layout
from moorage.cluster.status import part_statuses
from moorage.cluster.supervisor import running_pid
from moorage.cluster.teardown import stop_supervisor
from tests.cluster.holding import HOLDS
from tests.cluster.test_settings import SETTINGS

OTHER = "unix:///run/x.sock"


class Machine:
    """The steps; `used` is the engine on which pods may be."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[Any] = []
        self.layout = Layout(root)
        self.has_engine = True
        self.run = root / "run"

        def plan(*_: Any) -> Any:
            if not self.has_engine:
                raise NoEngineError("no conmon")
            return "plan"

        for name in ("end_pods", "unprotect", "tear_down", "sweep"):
            monkeypatch.setattr(teardown, name, self._coroutine(name))
        monkeypatch.setattr(teardown, "gather", self._coroutine("gather", "host"))
        monkeypatch.setattr(teardown, "prepare_host", self._coroutine("prepare", "host"))
        monkeypatch.setattr(teardown, "plan_engine", plan)
        monkeypatch.setattr(teardown, "pod_network", lambda *_: "network")
        monkeypatch.setattr(
            teardown, "engine_paths", lambda *_: SimpleNamespace(run=self.run, leases=self.run)
        )
        monkeypatch.setattr(teardown, "current_cgroups", lambda: "cgroups")
        monkeypatch.setattr(teardown, "remove_mounts", lambda *arguments: self.steps.append(
            ("mounts", *arguments)))  # fmt: skip
        monkeypatch.setattr(teardown, "remove_cgroups", lambda *arguments: self.steps.append(
            ("cgroups", *arguments)))  # fmt: skip

    def _coroutine(self, name: str, answer: Any = None) -> Any:
        async def call(*arguments: Any, **more: Any) -> Any:
            self.steps.append((name, *arguments, *more.values()))
            return answer

        return call

    async def clear(self, *, abandons_pods: bool = False, **changes: Any) -> list[str]:
        settings = msgspec.structs.replace(SETTINGS, **changes)
        await teardown.clear_host(self.layout, settings, abandons_pods=abandons_pods)
        assert engine_in_use(self.layout, settings) is None
        return [step[0] for step in self.steps]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


OWN = ["prepare", "tear_down"]
PORTS = ["gather", "unprotect"]
REST = ["mounts", "cgroups"]


@pytest.mark.parametrize(
    ("used", "changes", "has_run", "steps"),
    [
        ("", {}, False, [*OWN, *REST]),
        (None, {}, False, [*OWN, *REST]),
        (OTHER, {"cri": OTHER}, False, ["end_pods", *PORTS, *REST]),
        (None, {"cri": OTHER}, False, [*PORTS, *REST]),
        ("", {"cri": OTHER}, False, [*PORTS, *OWN, *REST]),
        (None, {"cri": OTHER}, True, [*PORTS, *OWN, *REST]),
        (OTHER, {}, False, ["end_pods", *OWN, *REST]),
        (None, {"has_node": False}, False, [*PORTS, *REST]),
        ("", {"has_node": False}, False, [*PORTS, *OWN, *REST]),
    ],
)
async def test_pods_end_where_they_were_left(
    machine: Machine, used: str | None, changes: dict[str, Any], has_run: bool, steps: list[str]
) -> None:
    note_engine(machine.layout, used)
    if has_run:
        machine.run.mkdir()
    assert await machine.clear(**changes) == steps
    arguments = {step[0]: step[1:] for step in machine.steps}
    settings = msgspec.structs.replace(SETTINGS, **changes)
    root = cgroup_root(settings)
    assert arguments["mounts"] == (machine.layout.node,)
    assert arguments["cgroups"] == ([root], "cgroups")
    if "end_pods" in arguments:
        assert arguments["end_pods"] == (OTHER, machine.layout, settings)
    if "unprotect" in arguments:
        assert arguments["unprotect"] == ("network", "host")
        assert arguments["gather"] == (machine.layout.root,)
    if "tear_down" in arguments:
        assert arguments["tear_down"] == ("plan", root)


async def test_pods_of_another_engine_can_be_left_to_it(machine: Machine) -> None:
    note_engine(machine.layout, OTHER)
    assert await machine.clear(cri=OTHER, abandons_pods=True) == [*PORTS, *REST]


async def test_without_what_an_engine_needs_everything_is_swept(machine: Machine) -> None:
    machine.has_engine = False
    assert await machine.clear() == ["prepare", "sweep", *REST]
    paths = machine.steps[1][1]
    root = cgroup_root(SETTINGS)
    assert machine.steps[1] == ("sweep", paths, "host", "network", frozenset({root}))
    assert paths.run == machine.run


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "a b")


async def test_stopping_what_does_not_run(layout: Layout) -> None:
    assert not await stop_supervisor(layout)
    layout.root.mkdir()
    # One that was killed leaves its number, which may be another's by now.
    layout.lock.write_text(str(os.getppid()))
    assert running_pid(layout) is None
    assert not await stop_supervisor(layout)


@pytest.mark.parametrize("kind", ["obedient", "stubborn"])
def test_stopping(layout: Layout, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(teardown, "_STOP_S", 0.2)
    argv = [sys.executable, "-c", HOLDS, str(layout.root), kind]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2 if kind == "stubborn" else 1):
            process.stdout.readline()
        # What the file says is not asked: the kernel knows who holds it.
        layout.lock.write_text("1")
        assert running_pid(layout) == process.pid
        if kind == "obedient":
            assert asyncio.run(stop_supervisor(layout))
        else:
            with pytest.raises(StopError, match=f"process {process.pid}"):
                asyncio.run(stop_supervisor(layout))
            assert part_statuses(layout) == ()
            process.kill()
