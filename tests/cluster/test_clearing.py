"""What `moor down` takes off a machine for each kind of cluster, and in which order."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.cluster import life
from moorage.cluster.engine import NoEngineError, engine_in_use, note_engine
from moorage.cluster.layout import Layout
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
            monkeypatch.setattr(life, name, self._coroutine(name))
        monkeypatch.setattr(life, "gather", self._coroutine("gather", "host"))
        monkeypatch.setattr(life, "prepare_host", self._coroutine("prepare", "host"))
        monkeypatch.setattr(life, "plan_engine", plan)
        monkeypatch.setattr(life, "pod_network", lambda *_: "network")
        monkeypatch.setattr(life, "engine_paths", lambda *_: SimpleNamespace(run=self.run))
        monkeypatch.setattr(life, "current_cgroups", lambda: "cgroups")
        monkeypatch.setattr(life, "remove_mounts", lambda *given: self.steps.append(
            ("mounts", *given)))  # fmt: skip
        monkeypatch.setattr(life, "remove_cgroups", lambda *given: self.steps.append(
            ("cgroups", *given)))  # fmt: skip

    def _coroutine(self, name: str, answer: Any = None) -> Any:
        async def call(*given: Any, **more: Any) -> Any:
            self.steps.append((name, *given, *more.values()))
            return answer

        return call

    async def clear(self, *, abandons_pods: bool = False, **changes: Any) -> list[str]:
        settings = msgspec.structs.replace(SETTINGS, **changes)
        await life.clear_machine(self.layout, settings, abandons_pods=abandons_pods)
        assert engine_in_use(self.layout, settings) is None
        return [each[0] for each in self.steps]


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
    given = {each[0]: each[1:] for each in machine.steps}
    settings = msgspec.structs.replace(SETTINGS, **changes)
    root = life.cgroup_root(settings)
    assert given["mounts"] == (machine.layout.node,)
    assert given["cgroups"] == ([root], "cgroups")
    if "end_pods" in given:
        assert given["end_pods"] == (OTHER, machine.layout, settings)
    if "unprotect" in given:
        assert given["unprotect"] == ("network", "host")
        assert given["gather"] == (machine.layout.root,)
    if "tear_down" in given:
        assert given["tear_down"] == ("plan", root)


async def test_pods_of_another_engine_can_be_left_to_it(machine: Machine) -> None:
    note_engine(machine.layout, OTHER)
    assert await machine.clear(cri=OTHER, abandons_pods=True) == [*PORTS, *REST]


async def test_without_what_an_engine_needs_everything_is_swept(machine: Machine) -> None:
    machine.has_engine = False
    assert await machine.clear() == ["prepare", "sweep", *REST]
    paths = machine.steps[1][1]
    root = life.cgroup_root(SETTINGS)
    assert machine.steps[1] == ("sweep", paths, "host", "network", frozenset({root}))
    assert paths.run == machine.run
