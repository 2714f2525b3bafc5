"""What `moor down` takes off a machine for each kind of cluster, and in which order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.cluster import clearing
from moorage.cluster.engine.paths import cgroup_root
from moorage.cluster.engine.plan import NoEngineError
from moorage.cluster.engine.usage import engine_in_use, note_engine
from moorage.cluster.errors import LeftoverError
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings, save
from tests.cluster.test_settings import SETTINGS

OTHER = "unix:///run/x.sock"


class Machine:
    """The steps; `used` is the engine on which pods may be."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[Any] = []
        self.layout = Layout(root)
        self.has_engine = True
        self.run = root / "run"

        def plan(layout: Layout, settings: Settings, host: str) -> Any:
            assert (layout, settings.cluster_id, host) == (self.layout, "0a1b2c3d", "host")
            if not self.has_engine:
                raise NoEngineError("no conmon")
            return "plan"

        for name in ("end_pods", "unprotect", "tear_down", "sweep"):
            monkeypatch.setattr(clearing, name, self._coroutine(name))
        monkeypatch.setattr(clearing, "gather", self._coroutine("gather", "host"))
        monkeypatch.setattr(clearing, "prepare_host", self._coroutine("prepare", "host"))
        monkeypatch.setattr(clearing, "plan_engine", plan)

        def network(settings: Settings, leases: Path) -> str:
            assert (settings.cluster_id, leases) == ("0a1b2c3d", self.run / "leases")
            return "network"

        def paths(layout: Layout, settings: Settings) -> Any:
            assert (layout, settings.cluster_id) == (self.layout, "0a1b2c3d")
            return SimpleNamespace(run=self.run, leases=self.run / "leases")

        monkeypatch.setattr(clearing, "pod_network", network)
        monkeypatch.setattr(clearing, "engine_paths", paths)
        monkeypatch.setattr(clearing, "current_cgroups", lambda: "cgroups")
        monkeypatch.setattr(clearing, "remove_mounts", lambda *arguments: self.steps.append(
            ("mounts", *arguments)))  # fmt: skip
        monkeypatch.setattr(clearing, "remove_cgroups", lambda *arguments: self.steps.append(
            ("cgroups", *arguments)))  # fmt: skip

    def _coroutine(self, name: str, answer: Any = None) -> Any:
        async def call(*arguments: Any, **more: Any) -> Any:
            self.steps.append((name, *arguments, *more.values()))
            return answer

        return call

    async def clear(self, options: Any = None, **changes: Any) -> list[str]:
        settings = msgspec.structs.replace(SETTINGS, **changes)
        await clearing.clear_host(self.layout, settings, **(options or {}))
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
    if "prepare" in arguments:
        assert arguments["prepare"] == (machine.layout.root,)
    if "unprotect" in arguments:
        assert arguments["unprotect"] == ("network", "host")
        assert arguments["gather"] == (machine.layout.root,)
    if "tear_down" in arguments:
        assert arguments["tear_down"] == ("plan", root)


async def test_pods_of_another_engine_can_be_left_to_it(machine: Machine) -> None:
    note_engine(machine.layout, OTHER)
    assert await machine.clear({"abandons_pods": True}, cri=OTHER) == [*PORTS, *REST]


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


@pytest.mark.parametrize("abandons_pods", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "output"),
    [
        (None, 0, ""),
        (LeftoverError("pod a stays"), 1, "pod a stays\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_the_process_that_clears_the_host(
    layout: Layout,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | None,
    status: int,
    output: str,
    abandons_pods: bool,
) -> None:
    calls: list[Any] = []

    async def clear(*arguments: Any, abandons_pods: bool) -> None:
        calls.append((*arguments, abandons_pods))
        if error is not None:
            raise error

    monkeypatch.setattr(clearing, "clear_host", clear)
    monkeypatch.setattr(clearing, "configure", calls.append)
    layout.root.mkdir()
    save(layout.settings, SETTINGS)
    argv = [str(layout.root), *(["--abandon-pods"] if abandons_pods else [])]
    assert clearing.main(argv) == status
    assert calls == ["warning", (layout, SETTINGS, abandons_pods)]
    assert capsys.readouterr().out == output


def test_without_settings_no_host_is_cleared(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clearing, "configure", lambda _: None)
    assert clearing.main([str(layout.root)]) == 1
    assert capsys.readouterr().out == f"{layout.settings}: no such file\n"


def test_the_module_is_a_program(layout: Layout) -> None:
    argv = [sys.executable, "-m", "moorage.cluster.clearing", str(layout.root)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, f"{layout.settings}: no such file\n")
