"""The CRI's calls on the parts of an engine: what each answers, changes and refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import moorage
from moorage.engine.containers.exec import Output, OutputLimit, exec_sync
from moorage.engine.containers.lifecycle import remove_container
from moorage.engine.engine import Engine
from moorage.engine.errors import (
    FailedError,
    InvalidError,
    NotFoundError,
    PreconditionError,
    TimeLimitError,
)
from moorage.engine.handlers.adapters import STDERR, STDOUT, AdapterError, UnsupportedError
from moorage.engine.handlers.availability import Verdict
from moorage.engine.handlers.definition import CgroupDriver
from moorage.engine.handlers.templates import Catalogue
from moorage.engine.inventory import Container, Sandbox
from moorage.engine.sandboxes.stop import stop_pod_sandbox
from moorage.engine.service.containers import ContainerServicer, SandboxServicer
from moorage.engine.service.statistics import StatisticsServicer
from moorage.engine.service.status import StatusServicer
from moorage.engine.service.streams import EngineTarget, StreamServicer
from moorage.engine.stats import Statistics
from moorage.engine.streams import StreamServer
from moorage.linux.cgroups import Cgroups, Layout
from moorage.wire.cri import pb
from moorage.wire.cri.client import OUTPUT_TAIL
from tests.clocks import START_NS, settle
from tests.engine.fakes import FIRST_PID, FakeStreams
from tests.engine.parts import ADDRESS, PARENT, Bench, bench, container_config, place, pod_config

__all__ = ["bench", "place"]

OCI = 'adapter = "oci"\nbinary = "runc"\n'
SYSTEMD = f'{OCI}cgroup_driver = "systemd"\n'


@pytest.fixture
def pods(bench: Bench) -> SandboxServicer:
    return SandboxServicer(bench.context)


@pytest.fixture
def calls(bench: Bench) -> ContainerServicer:
    return ContainerServicer(bench.context)


@pytest.fixture
async def pair(bench: Bench) -> tuple[Container, Container]:
    """A running container and a created one, each of a pod of its own."""
    first, second = await bench.pod(), await bench.pod(name="other")
    return await bench.running(first), await bench.created(second, name="second")


async def test_a_pod_from_its_start_to_its_removal(bench: Bench, pods: SandboxServicer) -> None:
    request = pb.RunPodSandboxRequest(config=pod_config(is_on_host=False), runtime_handler="runc")
    pod_id = (await pods.run_pod_sandbox(request)).pod_sandbox_id
    container = await bench.running(bench.inventory.sandboxes.find(pod_id))
    bench.clock.advance(3)
    asked = pb.PodSandboxStatusRequest(pod_sandbox_id=pod_id[:12])
    answer = await pods.pod_sandbox_status(asked)
    assert (answer.status.id, answer.status.state) == (pod_id, pb.SANDBOX_READY)
    assert (answer.status.network.ip, answer.status.runtime_handler) == (ADDRESS, "runc")
    assert [status.id for status in answer.containers_statuses] == [container.id]
    assert answer.timestamp == START_NS + 3_000_000_000
    assert not answer.info
    asked.verbose = True
    info = json.loads((await pods.pod_sandbox_status(asked)).info["info"])
    assert info.pop("network")["ips"] == [{"address": f"{ADDRESS}/24"}]
    assert info == {
        "pid": 0,
        "runtimeHandler": "runc",
        "runtimeBinary": str(bench.root / "bin/runc"),
        "namespaces": str(bench.paths.namespaces / pod_id),
    }
    update = pb.UpdatePodSandboxResourcesRequest(pod_sandbox_id=pod_id)
    assert await pods.update_pod_sandbox_resources(update) == pb.UpdatePodSandboxResourcesResponse()
    await pods.stop_pod_sandbox(pb.StopPodSandboxRequest(pod_sandbox_id=pod_id))
    assert not container.is_running
    stopped = (await pods.pod_sandbox_status(asked)).status
    assert (stopped.state, stopped.network.ip) == (pb.SANDBOX_NOTREADY, "")
    await pods.remove_pod_sandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=pod_id))
    assert not list(bench.inventory.sandboxes)


async def test_stop_and_removal_of_absent_pods_are_no_errors(pods: SandboxServicer) -> None:
    await pods.stop_pod_sandbox(pb.StopPodSandboxRequest(pod_sandbox_id="absent"))
    await pods.remove_pod_sandbox(pb.RemovePodSandboxRequest(pod_sandbox_id="absent"))
    with pytest.raises(NotFoundError, match="absent"):
        await pods.pod_sandbox_status(pb.PodSandboxStatusRequest(pod_sandbox_id="absent"))
    with pytest.raises(NotFoundError, match="absent"):
        await pods.update_pod_sandbox_resources(
            pb.UpdatePodSandboxResourcesRequest(pod_sandbox_id="absent")
        )


async def test_pods_are_listed_by_filter_in_one_message_or_each_in_its_own(
    bench: Bench, pods: SandboxServicer
) -> None:
    first, second = await bench.pod(), await bench.pod(name="other")
    await stop_pod_sandbox(bench.context, second)
    state = pb.PodSandboxStateValue(state=pb.SANDBOX_READY)
    for wanted, expected in (
        (pb.PodSandboxFilter(), {first, second}),
        (pb.PodSandboxFilter(state=state), {first}),
        (pb.PodSandboxFilter(id=second.id[:20]), {second}),
        (pb.PodSandboxFilter(label_selector={"app": "other"}), {second}),
    ):
        ids = {sandbox.id for sandbox in expected}
        listed = await pods.list_pod_sandbox(pb.ListPodSandboxRequest(filter=wanted))
        assert {sandbox.id for sandbox in listed.items} == ids
        request = pb.StreamPodSandboxesRequest(filter=wanted)
        parts = [response.pod_sandboxes async for response in pods.stream_pod_sandboxes(request)]
        assert [len(part) for part in parts] == [1] * len(ids)
        assert {entry.id for part in parts for entry in part} == ids


async def test_events_are_handed_on(bench: Bench, pods: SandboxServicer) -> None:
    events = pods.get_container_events(pb.GetEventsRequest())
    first = asyncio.ensure_future(anext(events))
    await settle()
    sandbox = await bench.pod()
    event = await first
    assert (event.container_id, event.created_at) == (sandbox.id, START_NS)
    assert event.pod_sandbox_status.metadata.name == "web"
    assert (await anext(events)).container_event_type == pb.CONTAINER_STARTED_EVENT
    container = await bench.running(sandbox)
    created = await anext(events)
    assert [status.id for status in created.containers_statuses] == [container.id]
    assert created.pod_sandbox_status.id == sandbox.id
    await remove_container(bench.context, container)
    kinds: list[int] = []
    while not kinds or kinds[-1] != pb.CONTAINER_DELETED_EVENT:
        last = await anext(events)
        kinds.append(last.container_event_type)
    assert not last.containers_statuses
    await events.aclose()  # type: ignore[attr-defined]


async def test_a_start_holds_off_work_that_can_wait(
    bench: Bench, pods: SandboxServicer, calls: ContainerServicer
) -> None:
    sandbox = await bench.pod()
    config = container_config()
    created = await calls.create_container(
        pb.CreateContainerRequest(pod_sandbox_id=sandbox.id, config=config)
    )
    bench.adapter.gates["create"] = asyncio.Event()
    request = pb.StartContainerRequest(container_id=created.container_id)
    starting = asyncio.create_task(calls.start_container(request))
    await settle()
    lull = asyncio.create_task(bench.context.idle_gate.wait(1))
    bench.clock.advance(10)
    await settle()
    assert not lull.done()
    bench.adapter.gates["create"].set()
    await starting
    await settle()
    assert not lull.done()
    for make in (
        lambda: pods.run_pod_sandbox(pb.RunPodSandboxRequest(config=pod_config(name="x"))),
        lambda: calls.create_container(
            pb.CreateContainerRequest(pod_sandbox_id=sandbox.id, config=container_config(name="y"))
        ),
    ):
        bench.clock.advance(0.9)
        await make()
        bench.clock.advance(0.9)
        await settle()
        assert not lull.done()
    bench.clock.advance(1)
    await settle()
    assert lull.done()


async def test_a_container_from_its_making_to_its_removal(
    bench: Bench, calls: ContainerServicer
) -> None:
    sandbox = await bench.pod()
    with pytest.raises(NotFoundError, match="absent"):
        await calls.create_container(pb.CreateContainerRequest(pod_sandbox_id="absent"))
    container_id = (
        await calls.create_container(
            pb.CreateContainerRequest(pod_sandbox_id=sandbox.id, config=container_config())
        )
    ).container_id
    await calls.start_container(pb.StartContainerRequest(container_id=container_id))
    asked = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
    answer = await calls.container_status(asked)
    assert answer.status.state == pb.CONTAINER_RUNNING
    assert answer.status.user.linux.uid == 1000
    info = json.loads(answer.info["info"])
    mounts = {mount["destination"]: mount for mount in info.pop("runtimeSpec")["mounts"]}
    assert mounts["/etc/hostname"]["source"] == str(
        bench.paths.sandbox_files(sandbox.id) / "hostname"
    )
    assert info == {
        "sandboxID": sandbox.id,
        "pid": FIRST_PID,
        "runtimeHandler": "runc",
        "runtimeBinary": str(bench.root / "bin/runc"),
        "bundle": str(bench.paths.bundle(container_id)),
        "cgroup": f"{PARENT}/{container_id}",
    }
    asked.verbose = False
    assert not (await calls.container_status(asked)).info
    await settle()
    await calls.stop_container(pb.StopContainerRequest(container_id=container_id, timeout=30))
    assert ("kill", container_id, "SIGUSR1") in bench.adapter.calls
    status = (await calls.container_status(asked)).status
    assert (status.state, status.exit_code) == (pb.CONTAINER_EXITED, 138)
    await calls.remove_container(pb.RemoveContainerRequest(container_id=container_id))
    assert not list(bench.inventory.containers)


async def test_stop_and_removal_of_absent_containers_are_no_errors(
    calls: ContainerServicer,
) -> None:
    await calls.stop_container(pb.StopContainerRequest(container_id="absent"))
    await calls.remove_container(pb.RemoveContainerRequest(container_id="absent"))
    for call in (
        calls.start_container(pb.StartContainerRequest(container_id="absent")),
        calls.container_status(pb.ContainerStatusRequest(container_id="absent")),
        calls.reopen_container_log(pb.ReopenContainerLogRequest(container_id="absent")),
        calls.update_container_resources(pb.UpdateContainerResourcesRequest(container_id="absent")),
    ):
        with pytest.raises(NotFoundError, match="absent"):
            await call


async def test_containers_are_listed_by_filter_in_one_message_or_each_in_its_own(
    calls: ContainerServicer, pair: tuple[Container, Container]
) -> None:
    first, second = pair
    state = pb.ContainerStateValue(state=pb.CONTAINER_RUNNING)
    for wanted, expected in (
        (pb.ContainerFilter(), {first.id, second.id}),
        (pb.ContainerFilter(state=state), {first.id}),
        (pb.ContainerFilter(id=second.id[:9]), {second.id}),
        (pb.ContainerFilter(pod_sandbox_id=first.sandbox.id), {first.id}),
        (pb.ContainerFilter(label_selector={"part": "second"}), {second.id}),
    ):
        listed = await calls.list_containers(pb.ListContainersRequest(filter=wanted))
        assert {container.id for container in listed.containers} == expected
        request = pb.StreamContainersRequest(filter=wanted)
        parts = [response.containers async for response in calls.stream_containers(request)]
        assert [len(part) for part in parts] == [1] * len(expected)
        assert {entry.id for part in parts for entry in part} == expected


def update(container: Container, **limits: Any) -> pb.UpdateContainerResourcesRequest:
    return pb.UpdateContainerResourcesRequest(
        container_id=container.id, linux=pb.LinuxContainerResources(**limits)
    )


async def test_limits_of_a_running_container_are_the_runtimes_to_change(
    bench: Bench, calls: ContainerServicer, pair: tuple[Container, Container]
) -> None:
    container, _ = pair
    await calls.update_container_resources(update(container, cpu_shares=512))
    assert ("update", {"cpu": {"shares": 512}}) in bench.adapter.calls_of(container.id)
    answer = await calls.container_status(pb.ContainerStatusRequest(container_id=container.id))
    limits = answer.status.resources.linux
    assert (limits.cpu_shares, limits.memory_limit_in_bytes) == (512, 64 << 20)
    # The next engine knows as well.
    assert pb.ContainerConfig.FromString(container.record.config) == container.config
    bench.adapter.failures["update"] = AdapterError("no")
    with pytest.raises(AdapterError):
        await calls.update_container_resources(update(container, cpu_shares=1024))
    assert container.config.linux.resources.cpu_shares == 512


async def test_limits_of_a_created_container_are_in_its_bundle(
    bench: Bench, calls: ContainerServicer, pair: tuple[Container, Container]
) -> None:
    _, container = pair
    await calls.update_container_resources(update(container, cpu_shares=512))
    config = bench.paths.bundle(container.id) / "config.json"
    resources = json.loads(config.read_text())["linux"]["resources"]
    assert resources["cpu"]["shares"] == 512
    assert resources["memory"]["limit"] == 64 << 20
    assert container.config.linux.resources.cpu_shares == 512
    assert config.stat().st_mode & 0o777 == 0o600
    assert not bench.adapter.calls_of(container.id)


async def test_limits_of_an_ended_container_stay(
    bench: Bench, calls: ContainerServicer, pair: tuple[Container, Container]
) -> None:
    container, _ = pair
    bench.end(container, 0)
    await container.exited.wait()
    await calls.update_container_resources(update(container, cpu_shares=512))
    assert container.config.linux.resources.cpu_shares == 0
    assert "update" not in {call[0] for call in bench.adapter.calls}


async def test_logs_and_checkpoints_are_of_running_containers(
    bench: Bench, calls: ContainerServicer, pair: tuple[Container, Container], place: Path
) -> None:
    running, created = pair
    archive = place / "a/b"
    await calls.reopen_container_log(pb.ReopenContainerLogRequest(container_id=running.id))
    request = pb.CheckpointContainerRequest(container_id=running.id, location=str(archive))
    for _ in range(2):
        await calls.checkpoint_container(request)
    assert archive.is_dir()
    asked = bench.adapter.calls_of(running.id)
    assert asked[2:] == ["reopen_log", *[("checkpoint", archive, True)] * 2]
    bench.adapter.failures["checkpoint"] = UnsupportedError("no criu")
    with pytest.raises(UnsupportedError):
        await calls.checkpoint_container(request)
    for call in (
        calls.reopen_container_log(pb.ReopenContainerLogRequest(container_id=created.id)),
        calls.checkpoint_container(pb.CheckpointContainerRequest(container_id=created.id)),
    ):
        with pytest.raises(PreconditionError, match=f"container {created.id} is not running"):
            await call


# The engine itself.


async def test_version_and_status(bench: Bench) -> None:
    calls = StatusServicer(bench.context)
    assert await calls.version(pb.VersionRequest()) == pb.VersionResponse(
        version="0.1.0",
        runtime_name="moorage",
        runtime_version=moorage.__version__,
        runtime_api_version="v1",
    )
    assert (
        await calls.update_runtime_config(pb.UpdateRuntimeConfigRequest())
        == pb.UpdateRuntimeConfigResponse()
    )
    features = pb.RuntimeHandlerFeatures(recursive_read_only_mounts=True)
    ready = pb.StatusResponse(
        status=pb.RuntimeStatus(
            conditions=[
                pb.RuntimeCondition(type="RuntimeReady", status=True),
                pb.RuntimeCondition(type="NetworkReady", status=True),
            ]
        ),
        runtime_handlers=[
            pb.RuntimeHandler(name="", features=features),
            pb.RuntimeHandler(name="runc", features=features),
        ],
        features=pb.RuntimeFeatures(supplemental_groups_policy=True),
    )
    assert await calls.status(pb.StatusRequest()) == ready
    verbose = await calls.status(pb.StatusRequest(verbose=True))
    assert verbose.info == {"handlers": "runc: available"}


async def test_a_status_says_what_is_missing(bench: Bench) -> None:
    calls = StatusServicer(bench.context)
    bench.offer(OCI, verdict=Verdict("it is broken", "repair it"))
    (bench.root / "net.d/10-n.conflist").unlink()
    answer = await calls.status(pb.StatusRequest(verbose=True))
    runtime, network = answer.status.conditions
    assert (runtime.type, runtime.status, runtime.reason) == (
        "RuntimeReady",
        False,
        "NoRuntimeHandler",
    )
    assert runtime.message == ("no runtime handler is available: runc: it is broken (repair it)")
    assert (network.type, network.status, network.reason) == (
        "NetworkReady",
        False,
        "NetworkPluginNotReady",
    )
    assert network.message.startswith("network plugin is not ready: ")
    assert not answer.runtime_handlers
    assert answer.info == {"handlers": "runc: it is broken"}
    bench.catalogue[0] = Catalogue()
    runtime = (await calls.status(pb.StatusRequest())).status.conditions[0]
    assert runtime.message.endswith("available: none is configured")


@pytest.mark.parametrize(("text", "driver"), [(OCI, pb.CGROUPFS), (SYSTEMD, pb.SYSTEMD)])
async def test_a_kubelet_uses_the_default_handlers_cgroup_driver(
    bench: Bench, text: str, driver: pb.CgroupDriver.ValueType
) -> None:
    bench.offer(text)
    answer = await StatusServicer(bench.context).runtime_config(pb.RuntimeConfigRequest())
    assert answer.linux.cgroup_driver == driver


@pytest.mark.parametrize("text", [OCI, ""])
async def test_a_kubelet_uses_the_engines_cgroup_driver_where_no_file_names_one(
    bench: Bench, text: str
) -> None:
    if text:
        bench.offer(text)
    else:
        bench.catalogue[0] = Catalogue()
    options = replace(bench.context.options, cgroup_driver=CgroupDriver.SYSTEMD)
    calls = StatusServicer(replace(bench.context, options=options))
    answer = await calls.runtime_config(pb.RuntimeConfigRequest())
    assert answer.linux.cgroup_driver == pb.SYSTEMD


async def test_without_a_handler_the_driver_is_cgroupfs(bench: Bench) -> None:
    bench.catalogue[0] = Catalogue()
    answer = await StatusServicer(bench.context).runtime_config(pb.RuntimeConfigRequest())
    assert answer.linux.cgroup_driver == pb.CGROUPFS


# Commands and streams.


async def test_a_command_runs_to_its_end(bench: Bench, pair: tuple[Container, Container]) -> None:
    container, created = pair
    bench.adapter.programs.append([(STDOUT, b"out"), (STDERR, b"err"), (STDOUT, b"put"), 3])
    request = pb.ExecSyncRequest(container_id=container.id, cmd=["ls", "-l"], timeout=10)
    answer = await exec_sync(bench.context, request, OutputLimit())
    assert (answer.stdout, answer.stderr, answer.exit_code) == (b"output", b"err", 3)
    (call,) = [made_call for made_call in bench.adapter.calls if made_call[0] == "exec"]
    assert (call[2]["args"], *call[3:]) == (["ls", "-l"], False, False)
    assert call[2]["user"]["uid"] == 1000
    assert bench.adapter.processes_started[0].is_killed
    with pytest.raises(InvalidError, match="no command given"):
        await exec_sync(bench.context, pb.ExecSyncRequest(container_id=container.id), OutputLimit())
    for id_ in (created.id, created.id[:10]):
        with pytest.raises(PreconditionError, match=f"{created.id} is not running: it is created"):
            await exec_sync(
                bench.context, pb.ExecSyncRequest(container_id=id_, cmd=["ls"]), OutputLimit()
            )
    bench.adapter.failures["exec"] = AdapterError("no such program")
    with pytest.raises(FailedError, match=f"exec in container {container.id}: no such program"):
        await exec_sync(bench.context, request, OutputLimit())


@pytest.mark.slow
async def test_a_command_that_takes_too_long_is_ended(
    bench: Bench, pair: tuple[Container, Container]
) -> None:
    container, _ = pair
    bench.adapter.programs.append([None])
    request = pb.ExecSyncRequest(container_id=container.id, cmd=["sleep", "9"], timeout=1)
    with pytest.raises(TimeLimitError, match=r"'sleep 9' timed out after 1 s in container "):
        await exec_sync(bench.context, request, OutputLimit())
    assert bench.adapter.processes_started[0].is_killed


async def test_output_that_stays_open_does_not_block_the_answer(
    bench: Bench, pair: tuple[Container, Container], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(FakeStreams, "read", never)
    bench.adapter.programs.append([0])
    async with asyncio.timeout(10):
        request = pb.ExecSyncRequest(container_id=pair[0].id, cmd=["daemon"])
        answer = await exec_sync(bench.context, request, OutputLimit(), drain_s=0.0)
    assert answer.exit_code == 0


async def test_output_beyond_the_limit_is_dropped(
    bench: Bench, pair: tuple[Container, Container]
) -> None:
    pieces = [(STDOUT, b"abc"), (STDOUT, b"defg"), (STDERR, b"12345"), (STDERR, b"6")]
    bench.adapter.programs.append([*pieces, 0])
    request = pb.ExecSyncRequest(container_id=pair[0].id, cmd=["x"])
    answer = await exec_sync(bench.context, request, OutputLimit(), most_bytes=5)
    assert (answer.stdout, answer.stderr) == (b"abcde", b"")


def test_an_error_after_a_flood_of_output_has_room() -> None:
    with Output(OutputLimit(), most_bytes=512) as output:
        output.add(STDOUT, b"x" * 600)
        output.add(STDERR, b"12345")
        assert (output[STDOUT], output[STDERR]) == (b"x" * 510, b"12")


async def test_the_end_of_an_output_is_kept_for_who_asks_for_it(
    bench: Bench, pair: tuple[Container, Container], streams: StreamServicer
) -> None:
    pieces = [(STDOUT, b"abc"), (STDERR, b"1"), (STDOUT, b"defg" * 99), (STDERR, b"2")]
    bench.adapter.programs.append([*pieces, 0])
    request = pb.ExecSyncRequest(container_id=pair[0].id, cmd=["x"])
    answer = await streams.exec_sync(request, {OUTPUT_TAIL: "3"})
    assert (answer.stdout, answer.stderr) == (b"efg", b"12")


async def test_all_commands_together_hold_no_more_than_the_limit(
    bench: Bench, pair: tuple[Container, Container]
) -> None:
    limit = OutputLimit(5)
    request = pb.ExecSyncRequest(container_id=pair[0].id, cmd=["x"])
    with Output(limit) as other:
        other.add(STDOUT, b"123")
        bench.adapter.programs.append([(STDOUT, b"abc"), 0])
        assert (await exec_sync(bench.context, request, limit)).stdout == b"ab"
    bench.adapter.programs.append([(STDOUT, b"abcdef"), 0])
    assert (await exec_sync(bench.context, request, limit)).stdout == b"abcde"


@pytest.fixture
async def streams(bench: Bench) -> AsyncIterator[StreamServicer]:
    async with StreamServer(EngineTarget(bench.context), clock=bench.clock) as server:
        yield StreamServicer(bench.context, server)


async def test_addresses_are_given_for_what_runs(
    bench: Bench, streams: StreamServicer, pair: tuple[Container, Container]
) -> None:
    running, created = pair
    exec_ = pb.ExecRequest(container_id=running.id, cmd=["sh"], stdin=True, stdout=True)
    attach = pb.AttachRequest(container_id=running.id, stdout=True)
    forward = pb.PortForwardRequest(pod_sandbox_id=running.sandbox.id)
    assert "/exec/" in (await streams.exec(exec_)).url
    assert "/attach/" in (await streams.attach(attach)).url
    assert "/portforward/" in (await streams.port_forward(forward)).url
    exec_.container_id = attach.container_id = created.id
    for call in (streams.exec(exec_), streams.attach(attach)):
        with pytest.raises(PreconditionError, match="is not running"):
            await call
    await stop_pod_sandbox(bench.context, running.sandbox)
    with pytest.raises(PreconditionError, match=f"sandbox {running.sandbox.id} is not ready"):
        await streams.port_forward(forward)
    forward.pod_sandbox_id = "absent"
    with pytest.raises(NotFoundError):
        await streams.port_forward(forward)
    request = pb.ExecSyncRequest(container_id=running.id, cmd=["x"])
    with pytest.raises(PreconditionError, match="it is exited"):
        await streams.exec_sync(request, {})


@pytest.mark.parametrize("has_stdin", [False, True])
@pytest.mark.parametrize("has_terminal", [False, True])
async def test_a_command_has_the_streams_of_its_request(
    bench: Bench, pair: tuple[Container, Container], has_stdin: bool, has_terminal: bool
) -> None:
    running, _ = pair
    request = pb.ExecRequest(
        container_id=running.id, cmd=["sh", "-c", "x"], stdin=has_stdin, tty=has_terminal
    )
    async with await EngineTarget(bench.context).exec(request):
        pass
    call, process, *options = bench.adapter.calls_of(running.id)[-1]
    assert (call, process["args"], options) == (
        "exec",
        ["sh", "-c", "x"],
        [has_stdin, has_terminal],
    )
    assert process.get("terminal", False) == has_terminal


async def test_commands_reach_the_runtime_and_the_pods_ports(
    bench: Bench, pair: tuple[Container, Container]
) -> None:
    running, _ = pair
    target = EngineTarget(bench.context)
    request = pb.ExecRequest(container_id=running.id, cmd=["sh"], stdin=True, tty=True)
    async with await target.exec(request):
        pass
    async with await target.attach(pb.AttachRequest(container_id=running.id)):
        pass
    exec_, attach = bench.adapter.calls_of(running.id)[2:]
    assert (exec_[0], exec_[1]["terminal"], *exec_[2:]) == ("exec", True, True, True)
    assert attach == "attach"
    listening = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        async with await target.dial(running.sandbox.id, port) as connection:
            assert not await connection.read()
        # A pod with a network of its own has nothing there.
        inner = await bench.pod(name="inner", is_on_host=False)
        with pytest.raises((OSError, FailedError)):
            await target.dial(inner.id, port)
    await stop_pod_sandbox(bench.context, running.sandbox)
    with pytest.raises(PreconditionError, match="is not ready"):
        await target.dial(running.sandbox.id, port)


# Statistics.


def statistics(bench: Bench) -> StatisticsServicer:
    mounts = {name: bench.root / "cgroup" / name for name in ("cpu", "memory", "pids")}
    cgroups = Cgroups(Layout.V1, mounts, hierarchies=tuple(mounts.values()))
    return StatisticsServicer(bench.context, Statistics(cgroups, bench.clock))


async def test_statistics_are_of_what_runs(bench: Bench, pair: tuple[Container, Container]) -> None:
    running, created = pair
    stopped = await bench.pod(name="stopped")
    await stop_pod_sandbox(bench.context, stopped)
    calls = statistics(bench)
    usage = bench.cgroup(f"{PARENT}/{running.id}")
    usage.mkdir(parents=True)
    (usage / "memory.usage_in_bytes").write_text("4096\n")
    (usage / "memory.stat").write_text("total_inactive_file 0\ntotal_rss 96\n")
    listed = await calls.list_container_stats(pb.ListContainerStatsRequest())
    (stats,) = listed.stats
    assert stats.attributes.id == running.id
    assert stats.attributes.metadata.name == "main"
    assert dict(stats.attributes.labels) == {"part": "main"}
    assert stats.memory.usage_bytes.value == 4096
    assert stats.writable_layer.used_bytes.value >= 0
    request = pb.ContainerStatsRequest(container_id=running.id)
    assert (await calls.container_stats(request)).stats.attributes == stats.attributes
    parts = [
        response.container_stats
        async for response in calls.stream_container_stats(pb.StreamContainerStatsRequest())
    ]
    assert [[one.attributes.id for one in part] for part in parts] == [[running.id]]
    other = pb.ContainerStatsFilter(id=created.id)
    assert not (await calls.list_container_stats(pb.ListContainerStatsRequest(filter=other))).stats
    pods = await calls.list_pod_sandbox_stats(pb.ListPodSandboxStatsRequest())
    ids = {running.sandbox.id, created.sandbox.id}
    assert {entry.attributes.id for entry in pods.stats} == ids
    assert {
        entry.attributes.id: [inner.attributes.id for inner in entry.linux.containers]
        for entry in pods.stats
    } == {running.sandbox.id: [running.id], created.sandbox.id: []}
    streamed = [
        response.pod_sandbox_stats
        async for response in calls.stream_pod_sandbox_stats(pb.StreamPodSandboxStatsRequest())
    ]
    assert {one.attributes.id for part in streamed for one in part} == ids
    assert all(len(part) == 1 for part in streamed)
    one = await calls.pod_sandbox_stats(
        pb.PodSandboxStatsRequest(pod_sandbox_id=running.sandbox.id)
    )
    assert one.stats.attributes.metadata.name == "web"
    assert [container.attributes.id for container in one.stats.linux.containers] == [running.id]
    metrics = await calls.list_pod_sandbox_metrics(pb.ListPodSandboxMetricsRequest())
    assert {pod_metrics.pod_sandbox_id for pod_metrics in metrics.pod_metrics} == ids
    stream = calls.stream_pod_sandbox_metrics(pb.StreamPodSandboxMetricsRequest())
    assert [len(response.pod_sandbox_metrics) async for response in stream] == [1, 1]
    described = await calls.list_metric_descriptors(pb.ListMetricDescriptorsRequest())
    assert described.descriptors


# The whole engine's end.


async def test_failed_removal_of_one_pod_does_not_keep_the_others(bench: Bench) -> None:
    made: list[Sandbox] = [await bench.pod(name=f"p{number}") for number in range(10)]
    held = await bench.running(made[4])
    bench.adapter.failures["delete"] = AdapterError("busy")
    engine = Engine(bench.context, None, None)  # type: ignore[arg-type]
    await engine.remove_all()
    assert {sandbox.id for sandbox in bench.inventory.sandboxes} == {held.sandbox.id}
    bench.adapter.failures.clear()
    await engine.remove_all()
    assert not list(bench.inventory.sandboxes)
    assert not bench.adapter.tasks
