"""What `moor down` takes off a machine for each kind of cluster, and in which order."""

from __future__ import annotations

import asyncio
import os
import signal
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
from moorage.cluster.errors import LeftoverError, StopError
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Settings, save
from moorage.cluster.status import part_statuses
from moorage.cluster.supervisor import running_pid
from moorage.cluster.teardown import stop_supervisor
from tests.cluster.holding import HOLDS
from tests.cluster.test_settings import SETTINGS
from tests.descriptors import open_descriptors

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
            monkeypatch.setattr(teardown, name, self._coroutine(name))
        monkeypatch.setattr(teardown, "gather", self._coroutine("gather", "host"))
        monkeypatch.setattr(teardown, "prepare_host", self._coroutine("prepare", "host"))
        monkeypatch.setattr(teardown, "plan_engine", plan)

        def network(settings: Settings, leases: Path) -> str:
            assert (settings.cluster_id, leases) == ("0a1b2c3d", self.run / "leases")
            return "network"

        def paths(layout: Layout, settings: Settings) -> Any:
            assert (layout, settings.cluster_id) == (self.layout, "0a1b2c3d")
            return SimpleNamespace(run=self.run, leases=self.run / "leases")

        monkeypatch.setattr(teardown, "pod_network", network)
        monkeypatch.setattr(teardown, "engine_paths", paths)
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

    async def clear(self, options: Any = None, **changes: Any) -> list[str]:
        settings = msgspec.structs.replace(SETTINGS, **changes)
        await teardown.clear_host(self.layout, settings, **(options or {}))
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


async def test_stopping_what_does_not_run(layout: Layout) -> None:
    assert not await stop_supervisor(layout)
    layout.root.mkdir()
    # One that was killed leaves its number, which may be another's by now.
    layout.lock.write_text(str(os.getppid()))
    assert running_pid(layout) is None
    assert not await stop_supervisor(layout)


async def test_a_supervisor_that_has_just_ended_is_stopped(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(pid: int) -> None:
        assert pid == 7
        raise ProcessLookupError

    monkeypatch.setattr(teardown, "running_pid", lambda _: 7)
    monkeypatch.setattr(teardown, "Process", gone)
    assert await stop_supervisor(layout)


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
        before = open_descriptors()
        if kind == "obedient":
            assert asyncio.run(stop_supervisor(layout))
            assert open_descriptors() == before
        else:
            with pytest.raises(StopError) as refused:
                asyncio.run(stop_supervisor(layout))
            ending = f"the supervisor (process {process.pid}) has not ended after 0.2 s"
            assert str(refused.value) == ending
            assert part_statuses(layout) == ()
            process.kill()


class Child:
    """The process that clears the host; it waits to be interrupted if `returncode` is None."""

    def __init__(self, returncode: int | None, output: bytes = b"") -> None:
        self.returncode = returncode
        self.output = output
        self.steps: list[Any] = []
        self.waits = asyncio.Event()

    async def communicate(self) -> tuple[bytes, None]:
        self.waits.set()
        if self.returncode is None:
            await asyncio.get_running_loop().create_future()
        return self.output, None

    def send_signal(self, number: int) -> None:
        self.steps.append(number)

    async def wait(self) -> None:
        self.steps.append("wait")


@pytest.fixture
def started(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was started, in which way; the child to start is the last item, which is removed."""
    calls: list[Any] = []

    async def start(*argv: str, **options: Any) -> Child:
        child: Child = calls.pop()
        calls.append((argv, options))
        return child

    machine.run.mkdir()
    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    return calls


@pytest.mark.parametrize("abandons_pods", [False, True])
async def test_pods_are_ended_by_a_process_of_its_own(
    machine: Machine, started: list[Any], abandons_pods: bool
) -> None:
    started.append(Child(0))
    options = {"abandons_pods": True} if abandons_pods else {}
    await teardown.clear_host_apart(machine.layout, SETTINGS, **options)
    argv = (
        sys.executable, "-m", "moorage.cluster.teardown", str(machine.layout.root),
        *(["--abandon-pods"] if abandons_pods else []),
    )  # fmt: skip
    # What interrupts this process does not reach that one, which is interrupted on its own.
    wanted = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "start_new_session": True}
    assert started == [(argv, wanted)]
    assert machine.steps == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (b"pod a stays\n", "pod a stays"),
        (b"\xff", "�"),
        (b" \n", "pods were not ended: exit status 3"),
    ],
)
async def test_what_that_process_could_not_end_is_an_error(
    machine: Machine, started: list[Any], output: bytes, message: str
) -> None:
    started.append(Child(3, output))
    with pytest.raises(LeftoverError) as refused:
        await teardown.clear_host_apart(machine.layout, SETTINGS)
    assert str(refused.value) == message


async def test_that_process_is_interrupted_and_waited_for(
    machine: Machine, started: list[Any]
) -> None:
    child = Child(None)
    started.append(child)
    clearing = asyncio.ensure_future(teardown.clear_host_apart(machine.layout, SETTINGS))
    await child.waits.wait()
    clearing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await clearing
    assert child.steps == [signal.SIGINT, "wait"]


async def test_without_an_engine_that_ran_no_process_is_started(
    machine: Machine, started: list[Any]
) -> None:
    machine.run.rmdir()
    await teardown.clear_host_apart(machine.layout, SETTINGS, abandons_pods=True)
    assert started == []
    assert [step[0] for step in machine.steps] == [*OWN, *REST]


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

    monkeypatch.setattr(teardown, "clear_host", clear)
    monkeypatch.setattr(teardown, "configure", calls.append)
    layout.root.mkdir()
    save(layout.settings, SETTINGS)
    argv = [str(layout.root), *(["--abandon-pods"] if abandons_pods else [])]
    assert teardown.main(argv) == status
    assert calls == ["warning", (layout, SETTINGS, abandons_pods)]
    assert capsys.readouterr().out == output


def test_without_settings_no_host_is_cleared(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(teardown, "configure", lambda _: None)
    assert teardown.main([str(layout.root)]) == 1
    assert capsys.readouterr().out == f"{layout.settings}: no such file\n"


def test_the_module_is_a_program(layout: Layout) -> None:
    argv = [sys.executable, "-m", "moorage.cluster.teardown", str(layout.root)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, f"{layout.settings}: no such file\n")
