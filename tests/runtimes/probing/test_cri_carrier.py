"""Probes as sandboxes of an engine: results, refusals, ends, and what is removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from aiohttp import web

from moorage.api.runtime_group import PROBE_LABEL
from moorage.linux.cgroups import Cgroups
from moorage.runtimes.probing.carrier import (
    CarrierError,
    Outcome,
    ProbeContainer,
    ProbeRefusedError,
)
from moorage.runtimes.probing.cri_carrier import CriCarrier
from moorage.runtimes.probing.cri_log import read_output
from moorage.runtimes.probing.pod_cgroups import make_pod_cgroup, pod_cgroups_below
from moorage.wire.cri import CriClient, pb
from tests.cgroup_trees import v1, v2, write
from tests.runtimes.probing.fake_engine import FakeEngine, Script, serving

_PROBE = ProbeContainer(image="probe:1", command=("/probe/facts",), cpu_millis=100, memory_bytes=64)
_DEADLINE_S = 20.0
_SHORT_S = 0.05
_OWNER = "c1.n1"
_DOWN = (grpc.StatusCode.UNAVAILABLE, "the socket is closed")
_NO = (grpc.StatusCode.UNKNOWN, "OCI runtime create\nfailed")


class _World:
    """A fake engine with a carrier on it."""

    def __init__(self, engine: FakeEngine, carrier: CriCarrier, state: Path) -> None:
        self.engine, self.carrier, self.state = engine, carrier, state
        self.script = engine.script

    @property
    def left(self) -> list[str]:
        """What a probe left: sandboxes and logs."""
        return [*self.engine.sandboxes, *(path.name for path in self.state.glob("*"))]


@asynccontextmanager
async def _world(directory: Path, cgroups: Cgroups | None = None) -> AsyncIterator[_World]:
    engine = FakeEngine(Script(images={"probe:1"}))
    async with serving(engine, directory) as endpoint, CriClient(endpoint) as cri:
        carrier = CriCarrier(
            cri,
            owner=_OWNER,
            state=directory / "state",
            cgroup_parent="/probes/" if cgroups else "",
            cgroups=cgroups,
        )
        yield _World(engine, carrier, directory / "state")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[_World]:
    async with _world(tmp_path) as world:
        yield world


async def test_a_probe_is_run_to_its_end_and_removed(world: _World) -> None:
    world.script.output = b"2026-01-01T00:00:00Z stdout F out\n2026-01-01T00:00:00Z stderr P err"
    world.script.ending = pb.ContainerStatus(
        state=pb.CONTAINER_EXITED, exit_code=3, reason="Error", message="it\nfailed"
    )
    result = await world.carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.exit_code, result.output) == (Outcome.ENDED, 3, "out\nerr")
    assert (result.reason, result.error) == ("Error", "it failed")
    assert not result.is_success
    assert 0 < result.start_s <= result.total_s < _DEADLINE_S
    (request,) = world.engine.named("RunPodSandbox")
    assert request.runtime_handler == "crun"
    assert request.config.metadata.name.startswith("probe-crun-")
    assert dict(request.config.labels) == {PROBE_LABEL: _OWNER}
    assert request.config.linux.cgroup_parent == ""
    (created,) = world.engine.named("CreateContainer")
    assert created.sandbox_config == request.config
    assert list(created.config.command) == ["/probe/facts"]
    assert world.left == []


async def test_the_default_handler_has_a_name_in_its_probes(world: _World) -> None:
    await world.carrier.run("", _PROBE, deadline_s=_DEADLINE_S)
    (request,) = world.engine.named("RunPodSandbox")
    assert request.runtime_handler == ""
    assert request.config.metadata.name.startswith("probe-default-")


async def test_probes_of_a_handler_have_names_and_ids_of_their_own(world: _World) -> None:
    for _ in range(2):
        await world.carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    one, two = (request.config.metadata for request in world.engine.named("RunPodSandbox"))
    assert one.name != two.name
    assert one.uid != two.uid


@pytest.mark.parametrize("method", ["RunPodSandbox", "CreateContainer", "StartContainer"])
async def test_what_the_engine_refuses_is_refused_and_removed(world: _World, method: str) -> None:
    world.script.failures = {method: _NO}
    result = await world.carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.error) == (Outcome.REFUSED, "OCI runtime create failed")
    assert 0 < result.total_s < _DEADLINE_S
    assert world.left == []


@pytest.mark.parametrize("method", ["ImageStatus", "RunPodSandbox", "StartContainer"])
async def test_an_engine_that_does_not_answer_says_nothing_of_a_handler(
    world: _World, method: str
) -> None:
    world.script.failures = {method: _DOWN}
    with pytest.raises(CarrierError, match="does not answer: the socket is closed"):
        await world.carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert world.left == []


async def test_an_image_is_asked_for_once_and_one_that_is_not_there_is_no_refusal(
    world: _World,
) -> None:
    for _ in range(2):
        await world.carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert len(world.engine.named("ImageStatus")) == 1
    other = ProbeContainer(image="probe:2", command=("/x",))
    with pytest.raises(CarrierError, match="the engine has no image probe:2"):
        await world.carrier.run("crun", other, deadline_s=_DEADLINE_S)


async def test_a_container_that_does_not_end_is_cut_off_with_its_output(world: _World) -> None:
    world.script.output = b"T stdout F before\n"
    world.script.ending = pb.ContainerStatus(state=pb.CONTAINER_RUNNING)
    result = await world.carrier.run("crun", _PROBE, deadline_s=0.5)
    assert (result.outcome, result.output) == (Outcome.CUT_OFF, "before\n")
    assert result.error == "it did not end within 0 s"
    assert 0 < result.start_s < result.total_s < _DEADLINE_S
    assert world.left == []


async def test_a_container_that_prints_too_much_is_cut_off_before_its_deadline(
    world: _World,
) -> None:
    line = b"T stdout F " + b"x" * 1013 + b"\n"
    world.script.output = line * 1025
    world.script.ending = pb.ContainerStatus(state=pb.CONTAINER_RUNNING)
    result = await world.carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert (result.outcome, len(result.output)) == (Outcome.CUT_OFF, 65536)
    assert result.error == "it was ended after more than 1048576 bytes of output"


async def test_a_status_that_cannot_be_read_says_nothing_of_a_handler(world: _World) -> None:
    world.script.failures = {"ContainerStatus": _NO}
    with pytest.raises(CarrierError, match="status of a probe cannot be read: OCI runtime"):
        await world.carrier.run("crun", _PROBE, deadline_s=_DEADLINE_S)
    assert world.left == []


async def test_a_start_that_takes_too_long_is_cut_off(world: _World) -> None:
    world.script.failures = {"RunPodSandbox": (grpc.StatusCode.DEADLINE_EXCEEDED, "too late")}
    with pytest.raises(ProbeRefusedError) as raised:
        async with world.carrier.running("crun", _PROBE, deadline_s=-1.0):
            pass
    assert raised.value.result.outcome is Outcome.CUT_OFF
    assert raised.value.result.error == "it was not started within -1 s"
    assert world.left == []


async def test_a_command_in_a_container(world: _World) -> None:
    world.script.executed = pb.ExecSyncResponse(stdout=b"a\xff", stderr=b"b" * 70000, exit_code=4)
    async with world.carrier.running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        assert probe.start_s > 0
        assert probe.cgroup == ""
        result = await probe.exec(["id", "-u"], deadline_s=7.9)
        assert (result.outcome, result.exit_code) == (Outcome.ENDED, 4)
        assert (result.output[:3], len(result.output)) == ("a�b", 65536)
        assert 0 < result.total_s < _DEADLINE_S
        await probe.exec(["true"], deadline_s=0.9)
        assert world.left
    first, second = world.engine.named("ExecSync")
    assert (list(first.cmd), first.timeout, second.timeout) == (["id", "-u"], 7, 1)
    assert world.engine.metadata["moorage-output-tail-bytes"] == "65536"
    assert world.left == []


@pytest.mark.parametrize(
    ("step", "method"),
    [
        ("exec", "ExecSync"),
        ("resize", "UpdateContainerResources"),
        ("checkpoint", "CheckpointContainer"),
        ("fetch", "PortForward"),
    ],
)
@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (grpc.StatusCode.UNKNOWN, Outcome.REFUSED),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Outcome.CUT_OFF),
        (grpc.StatusCode.UNAVAILABLE, None),
    ],
)
async def test_a_step_that_the_engine_refuses(
    world: _World, step: str, method: str, code: grpc.StatusCode, outcome: Outcome | None
) -> None:
    async with world.carrier.running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        steps = {
            "exec": lambda: probe.exec(["true"], deadline_s=_DEADLINE_S),
            "resize": lambda: probe.resize(cpu_millis=1, memory_bytes=1, deadline_s=_DEADLINE_S),
            "checkpoint": lambda: probe.checkpoint(deadline_s=_DEADLINE_S),
            "fetch": lambda: probe.fetch(80, deadline_s=_DEADLINE_S),
        }
        world.script.failures = {method: (code, "the engine's sentence")}
        if outcome is None:
            with pytest.raises(CarrierError, match="does not answer: the engine's sentence"):
                await steps[step]()
        else:
            result = await steps[step]()
            assert (result.outcome, result.error) == (outcome, "the engine's sentence")
            assert 0 < result.total_s < _DEADLINE_S


async def test_a_resize_and_a_checkpoint_that_are_taken(world: _World) -> None:
    async with world.carrier.running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        resized = await probe.resize(cpu_millis=200, memory_bytes=96, deadline_s=_DEADLINE_S)
        saved = await probe.checkpoint(deadline_s=8.0)
    for result in (resized, saved):
        assert result.is_success
        assert 0 < result.total_s < _DEADLINE_S
    (update,) = world.engine.named("UpdateContainerResources")
    assert (update.linux.cpu_quota, update.linux.memory_limit_in_bytes) == (20000, 96)
    (request,) = world.engine.named("CheckpointContainer")
    assert request.timeout == 8
    # The archive goes with the log directory.
    assert Path(request.location).parent.parent == world.state
    assert world.left == []


@asynccontextmanager
async def _port(*messages: bytes, hangs: bool = False) -> AsyncIterator[str]:
    async def answer(request: web.Request) -> web.WebSocketResponse:
        websocket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await websocket.prepare(request)
        for message in messages:
            await websocket.send_bytes(message)
        if hangs:
            await websocket.receive()
        await websocket.close()
        return websocket

    application = web.Application()
    application.router.add_get("/forward", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/forward"
    finally:
        await runner.cleanup()


_HEADS = (b"\x00\x50\x00", b"\x01\x50\x00")


@pytest.mark.parametrize(
    ("messages", "code", "output", "error"),
    [
        ((*_HEADS, b"\x00moor", b"\x00age\n"), 0, "moorage\n", ""),
        ((*_HEADS, b"\x01no such\n", b"\x01port"), 1, "", "no such port"),
        ((*_HEADS, b"", b"\x07other", b"\x00x"), 0, "x", ""),
        ((_HEADS[0], b"\x00\xff"), 0, "�", ""),
        ((*_HEADS, b"\x00" + b"x" * 40000, b"\x00" + b"y" * 40000), 0,
         "x" * 40000 + "y" * 25536, ""),
        ((), 1, "", ""),
    ],
)  # fmt: skip
async def test_what_a_forwarded_port_sends(
    world: _World, messages: tuple[bytes, ...], code: int, output: str, error: str
) -> None:
    async with (
        _port(*messages) as url,
        world.carrier.running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe,
    ):
        world.script.forward_url = url
        result = await probe.fetch(80, deadline_s=_DEADLINE_S)
    assert (result.outcome, result.exit_code) == (Outcome.ENDED, code)
    assert (result.output, result.error) == (output, error)
    assert 0 < result.total_s < _DEADLINE_S
    (request,) = world.engine.named("PortForward")
    assert list(request.port) == [80]
    assert request.pod_sandbox_id


async def test_a_line_is_enough_of_a_port_that_stays_open(world: _World) -> None:
    async with (
        _port(*_HEADS, b"\x00moorage\n", hangs=True) as url,
        world.carrier.running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe,
    ):
        world.script.forward_url = url
        assert (await probe.fetch(80, deadline_s=_DEADLINE_S)).output == "moorage\n"


async def test_a_port_that_sends_nothing_is_cut_off_and_one_that_is_closed_is_refused(
    world: _World,
) -> None:
    async with world.carrier.running("crun", _PROBE, deadline_s=_DEADLINE_S) as probe:
        async with _port(*_HEADS, hangs=True) as url:
            world.script.forward_url = url
            result = await probe.fetch(80, deadline_s=_SHORT_S)
            assert result.outcome is Outcome.CUT_OFF
            assert result.error == "it did not end within 0 s"
            assert 0 < result.total_s < _DEADLINE_S
        result = await probe.fetch(80, deadline_s=_DEADLINE_S)
        assert result.outcome is Outcome.REFUSED
        assert "Cannot connect" in result.error


async def test_what_earlier_processes_left_is_removed_and_counted(world: _World) -> None:
    world.engine.add({PROBE_LABEL: _OWNER})
    world.engine.add({PROBE_LABEL: _OWNER, "more": "x"})
    others = [world.engine.add({PROBE_LABEL: "c1.n2"}), world.engine.add({})]
    (world.state / "probe-x").mkdir(parents=True)
    assert await world.carrier.clean() == 2
    assert list(world.engine.sandboxes) == others
    assert not world.state.exists()
    assert await world.carrier.clean() == 0


async def test_a_sandbox_that_cannot_be_removed_holds_up_its_own_handler_only(
    world: _World,
) -> None:
    world.engine.add({PROBE_LABEL: _OWNER}, handler="kata")
    world.engine.add({PROBE_LABEL: _OWNER}, handler="kata")
    world.script.failures = {"StopPodSandbox": (grpc.StatusCode.UNKNOWN, "the VM hangs")}
    assert await world.carrier.clean() == 0
    result = await world.carrier.run("kata", _PROBE, deadline_s=_DEADLINE_S)
    assert result.outcome is Outcome.REFUSED
    assert result.error == "an earlier probe cannot be removed: the VM hangs"
    assert not world.engine.named("RunPodSandbox")
    world.script.failures = {}
    assert (await world.carrier.run("runc", _PROBE, deadline_s=_DEADLINE_S)).is_success
    assert len(world.engine.sandboxes) == 2
    # It can be removed now, and is before the handler's next probe.
    assert (await world.carrier.run("kata", _PROBE, deadline_s=_DEADLINE_S)).is_success
    assert world.left == []


async def test_a_sandbox_that_is_gone_already_is_removed(world: _World) -> None:
    world.engine.add({PROBE_LABEL: _OWNER})
    world.script.failures = {"StopPodSandbox": (grpc.StatusCode.NOT_FOUND, "gone")}
    assert await world.carrier.clean() == 1


async def test_leftovers_that_cannot_be_listed_say_nothing_of_a_handler(world: _World) -> None:
    world.script.failures = {"ListPodSandbox": _NO}
    with pytest.raises(CarrierError, match="probes cannot be listed: OCI runtime create"):
        await world.carrier.clean()


@pytest.mark.parametrize(
    ("cpu_millis", "memory_bytes", "pids_limit", "files"),
    [
        (100, 64, 0, {"cpu.weight": "10", "cpu.max": "10000 100000", "memory.max": "64",
                      "pids.max": "1024"}),
        (0, 0, 128, {"cpu.weight": "1", "memory.max": str(512 * 1024 * 1024), "pids.max": "128"}),
    ],
)  # fmt: skip
async def test_a_probe_has_a_cgroup_with_its_limits_while_it_runs(
    tmp_path: Path, cpu_millis: int, memory_bytes: int, pids_limit: int, files: dict[str, str]
) -> None:
    cgroups = _v2(tmp_path / "cgroups")
    container = ProbeContainer(
        image="probe:1",
        command=("/x",),
        cpu_millis=cpu_millis,
        memory_bytes=memory_bytes,
        pids_limit=pids_limit,
    )
    async with _world(tmp_path, cgroups) as world:
        async with world.carrier.running("crun", container, deadline_s=_DEADLINE_S) as probe:
            (request,) = world.engine.named("RunPodSandbox")
            name = request.config.metadata.name
            assert probe.cgroup == request.config.linux.cgroup_parent == f"/probes/{name}"
            directory = tmp_path / "cgroups" / "probes" / name
            assert _limits(directory) == files
            await probe.resize(cpu_millis=200, memory_bytes=96, deadline_s=_DEADLINE_S)
            grown = {"cpu.weight": "20", "cpu.max": "20000 100000", "memory.max": "96"}
            assert _limits(directory) == {**files, **grown}
        assert world.left == []


async def test_cgroups_that_probes_left_are_removed_with_their_files(tmp_path: Path) -> None:
    cgroups = _v2(tmp_path / "cgroups")
    left = [tmp_path / "cgroups" / "probes" / name for name in ("a", "b")]
    for directory in left:
        directory.mkdir()
    async with _world(tmp_path, cgroups) as world:
        assert await world.carrier.clean() == 0
        assert not any(directory.exists() for directory in left)


def _v2(directory: Path) -> Cgroups:
    for path in (directory, directory / "probes"):
        write(path, {"cgroup.controllers": "", "cgroup.subtree_control": ""})
    return v2(directory)


def _limits(directory: Path) -> dict[str, str]:
    names = ("cpu.weight", "cpu.max", "memory.max", "pids.max")
    return {name: (directory / name).read_text() for name in names if (directory / name).exists()}


@pytest.mark.parametrize(
    ("cpu_millis", "files"),
    [
        (100, {"cpu.shares": "102", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "10000"}),
        (0, {"cpu.shares": "2"}),
    ],
)
def test_limits_on_version_1_are_files_of_each_controller(
    tmp_path: Path, cpu_millis: int, files: dict[str, str]
) -> None:
    cgroups = v1(tmp_path)
    write(tmp_path / "cpuset", {"cpuset.cpus": "0", "cpuset.mems": "0"})
    write(tmp_path / "cpuset" / "probes", {"cpuset.cpus": "0", "cpuset.mems": "0"})
    write(tmp_path / "cpuset" / "probes" / "a", {"cpuset.cpus": "0", "cpuset.mems": "0"})
    make_pod_cgroup(cgroups, "/probes/a", cpu_millis=cpu_millis, memory_bytes=64, pids=7)
    wanted = {
        **{f"cpu/probes/a/{name}": value for name, value in files.items()},
        "memory/probes/a/memory.limit_in_bytes": "64",
        "pids/probes/a/pids.max": "7",
    }
    written = {
        str(path.relative_to(tmp_path)): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name.startswith(("cpu.", "memory.", "pids."))
    }
    assert written == wanted
    (tmp_path / "memory" / "probes" / "b").mkdir()
    assert pod_cgroups_below(cgroups, "/probes") == {"/probes/a", "/probes/b"}
    assert pod_cgroups_below(cgroups, "/none") == frozenset()


def test_a_log_has_lines_and_parts_of_lines(tmp_path: Path) -> None:
    log = tmp_path / "probe.log"
    assert read_output(log) == ""
    log.write_bytes(
        b"T stdout F a b\nno log\nT stdout P:x c\nT stderr F  d\nT stdout F\nT stdout F \n"
    )
    assert read_output(log) == "a b\nc d\n\n"
    log.write_bytes(b"T stdout F " + b"x" * 65535 + b"\nT stdout F y\n")
    assert read_output(log) == "x" * 65535 + "\n"
