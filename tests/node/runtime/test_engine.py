"""The agent's calls of an engine: which call, with which request, and what of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from moorage.node.pod_facts.labels import POD_UID
from moorage.node.runtime.engine import OUTPUT_TAIL_BYTES, Engine, EngineVersion, ExecResult
from moorage.wire.cri import CriError, pb
from moorage.wire.cri.client import CriClient


class Answering(grpc.GenericRpcHandler):
    """A server of every method: keeps the requests, gives prepared replies or refusals."""

    def __init__(self) -> None:
        self.replies: dict[str, Any] = {}
        self.asked: list[tuple[str, Any, float | None]] = []

    def service(self, details: Any) -> Any:
        name = details.method.rsplit("/", 1)[-1]

        async def answer(request: bytes, context: Any) -> bytes:
            kind = getattr(pb, f"{name}Request", None) or pb.ExecRequest
            self.asked.append((name, kind.FromString(request), context.time_remaining()))
            reply = self.replies[name]
            if isinstance(reply, grpc.StatusCode):
                await context.abort(reply, "said so")
            return bytes(reply.SerializeToString())

        async def stream(request: bytes, context: Any) -> AsyncIterator[bytes]:
            del request, context
            for reply in self.replies[name]:
                yield reply.SerializeToString()

        if name == "GetContainerEvents":
            return grpc.unary_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(answer)


class Case:
    def __init__(self, engine: Engine, server: Answering) -> None:
        self.engine = engine
        self.server = server

    def will(self, name: str, reply: Any) -> None:
        self.server.replies[name] = reply

    @property
    def last(self) -> Any:
        return self.server.asked[-1][1]

    @property
    def deadline_s(self) -> float | None:
        return self.server.asked[-1][2]


@pytest.fixture
async def case(tmp_path: Path) -> AsyncIterator[Case]:
    handler = Answering()
    server = aio.server()
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix://{tmp_path}/e.sock")
    await server.start()
    async with CriClient(f"unix://{tmp_path}/e.sock") as client:
        yield Case(Engine(client), handler)
    await server.stop(None)


REFUSALS = [
    ("Version", lambda e: e.version(), pb.VersionResponse(runtime_version="1"), "not all fields"),
    ("Version", lambda e: e.version(),
     pb.VersionResponse(runtime_name="x", runtime_api_version="v1"), "not all fields"),
    ("Version", lambda e: e.version(),
     pb.VersionResponse(runtime_name="x", runtime_version="1"), "not all fields"),
    ("Version", lambda e: e.version(),
     pb.VersionResponse(runtime_version="1", runtime_api_version="v1"), "not all fields"),
    ("Status", lambda e: e.status(),
     pb.StatusResponse(status=pb.RuntimeStatus(conditions=[pb.RuntimeCondition()])), "fewer"),
    ("RunPodSandbox", lambda e: e.run_sandbox(pb.PodSandboxConfig(), "x"),
     pb.RunPodSandboxResponse(), "pod_sandbox_id is not set"),
    ("CreateContainer",
     lambda e: e.create_container("s", pb.ContainerConfig(), pb.PodSandboxConfig()),
     pb.CreateContainerResponse(), "container_id is not set"),
    ("PullImage", lambda e: e.pull_image(pb.ImageSpec(), None, pb.PodSandboxConfig()),
     pb.PullImageResponse(), "image_ref is not set"),
    ("Exec", lambda e: e.exec_url(pb.ExecRequest()), pb.ExecResponse(), "url is not set"),
    ("Attach", lambda e: e.attach_url(pb.AttachRequest()), pb.AttachResponse(), "url is not set"),
    ("PortForward", lambda e: e.port_forward_url("s", [80]), pb.PortForwardResponse(),
     "url is not set"),
    ("ContainerStatus", lambda e: e.container_status("c"),
     pb.ContainerStatusResponse(status=pb.ContainerStatus(id="c")), "created_at"),
    ("ContainerStatus", lambda e: e.container_status("c"),
     pb.ContainerStatusResponse(status=pb.ContainerStatus(created_at=1)), "created_at"),
    *[("PodSandboxStatus", lambda e: e.sandbox_status("s"),
       pb.PodSandboxStatusResponse(status=status), "created_at")
      for status in (
          pb.PodSandboxStatus(id="s", created_at=1),
          pb.PodSandboxStatus(id="s", metadata=pb.PodSandboxMetadata(uid="u")),
          pb.PodSandboxStatus(created_at=1, metadata=pb.PodSandboxMetadata(uid="u")),
      )],
]  # fmt: skip


@pytest.mark.parametrize(("name", "call", "reply", "message"), REFUSALS)
async def test_incomplete_reply_is_an_error(
    case: Case, name: str, call: Any, reply: Any, message: str
) -> None:
    case.will(name, reply)
    with pytest.raises(CriError, match=f"malformed reply to {name}: .*{message}") as caught:
        await call(case.engine)
    assert caught.value.code is grpc.StatusCode.INTERNAL


async def test_version_and_status(case: Case) -> None:
    version = pb.VersionResponse(runtime_name="x", runtime_version="1", runtime_api_version="v1")
    case.will("Version", version)
    assert await case.engine.version() == EngineVersion("x", "1")
    assert case.last.version == "0.1.0"
    assert case.deadline_s is not None
    assert case.deadline_s <= 11
    status = pb.StatusResponse(status=pb.RuntimeStatus(conditions=[pb.RuntimeCondition()] * 2),
                               info={"a": "b"})  # fmt: skip
    case.will("Status", status)
    assert await case.engine.status() == status
    assert not case.last.verbose
    assert dict(await case.engine.verbose_info()) == {"a": "b"}
    assert case.last.verbose


async def test_the_cgroup_driver_of_engines_old_and_new(case: Case) -> None:
    linux = pb.LinuxRuntimeConfiguration(cgroup_driver=pb.CGROUPFS)
    case.will("RuntimeConfig", pb.RuntimeConfigResponse(linux=linux))
    assert await case.engine.cgroup_driver() == pb.CGROUPFS
    case.will("RuntimeConfig", pb.RuntimeConfigResponse())
    assert await case.engine.cgroup_driver() is None
    case.will("RuntimeConfig", grpc.StatusCode.UNIMPLEMENTED)
    assert await case.engine.cgroup_driver() is None
    case.will("RuntimeConfig", grpc.StatusCode.INTERNAL)
    with pytest.raises(CriError, match="said so"):
        await case.engine.cgroup_driver()


async def test_sandboxes(case: Case) -> None:
    engine, config = case.engine, pb.PodSandboxConfig(hostname="h")
    case.will("RunPodSandbox", pb.RunPodSandboxResponse(pod_sandbox_id="s1"))
    assert await engine.run_sandbox(config, "gvisor") == "s1"
    assert (case.last.config, case.last.runtime_handler) == (config, "gvisor")
    assert case.deadline_s is not None
    assert 121 < case.deadline_s <= 242
    listed = [pb.PodSandbox(id="s1"), pb.PodSandbox(id="s2")]
    case.will("ListPodSandbox", pb.ListPodSandboxResponse(items=listed))
    assert list(await engine.sandboxes()) == listed
    assert not case.last.HasField("filter")
    await engine.sandboxes("u")
    assert dict(case.last.filter.label_selector) == {POD_UID: "u"}
    status = pb.PodSandboxStatus(id="s1", created_at=1, metadata=pb.PodSandboxMetadata(uid="u"))
    case.will("PodSandboxStatus", pb.PodSandboxStatusResponse(status=status))
    assert await engine.sandbox_status("s1") == status
    assert case.last.pod_sandbox_id == "s1"


async def test_containers(case: Case) -> None:
    engine = case.engine
    config, sandbox = pb.ContainerConfig(log_path="l"), pb.PodSandboxConfig(hostname="h")
    case.will("CreateContainer", pb.CreateContainerResponse(container_id="c1"))
    assert await engine.create_container("s1", config, sandbox) == "c1"
    asked = case.last
    assert (asked.pod_sandbox_id, asked.config, asked.sandbox_config) == ("s1", config, sandbox)
    case.will("StartContainer", pb.StartContainerResponse())
    await engine.start_container("c1")
    assert case.last.container_id == "c1"
    case.will("StopContainer", pb.StopContainerResponse())
    await engine.stop_container("c1", 7)
    assert (case.last.container_id, case.last.timeout) == ("c1", 7)
    assert case.deadline_s is not None
    assert 120 < case.deadline_s <= 129
    case.will("ListContainers", pb.ListContainersResponse(containers=[pb.Container(id="c1")]))
    assert [container.id for container in await engine.containers()] == ["c1"]
    assert not case.last.HasField("filter")
    await engine.containers("u")
    assert dict(case.last.filter.label_selector) == {POD_UID: "u"}
    status = pb.ContainerStatus(id="c1", created_at=1)
    case.will("ContainerStatus", pb.ContainerStatusResponse(status=status))
    assert await engine.container_status("c1") == status
    case.will("ReopenContainerLog", pb.ReopenContainerLogResponse())
    await engine.reopen_log("c1")
    assert case.last.container_id == "c1"


@pytest.mark.parametrize(
    ("name", "call", "field"),
    [
        ("StopPodSandbox", lambda e: e.stop_sandbox("x"), "pod_sandbox_id"),
        ("RemovePodSandbox", lambda e: e.remove_sandbox("x"), "pod_sandbox_id"),
        ("StopContainer", lambda e: e.stop_container("x", 0), "container_id"),
        ("RemoveContainer", lambda e: e.remove_container("x"), "container_id"),
        ("RemoveImage", lambda e: e.remove_image("x"), "image"),
    ],
)
async def test_what_is_gone_already_need_not_be_taken_away(
    case: Case, name: str, call: Any, field: str
) -> None:
    case.will(name, grpc.StatusCode.NOT_FOUND)
    await call(case.engine)
    asked = getattr(case.last, field)
    assert (asked.image if field == "image" else asked) == "x"
    case.will(name, getattr(pb, f"{name}Response")())
    await call(case.engine)
    case.will(name, grpc.StatusCode.UNKNOWN)
    with pytest.raises(CriError) as caught:
        await call(case.engine)
    assert (caught.value.method, caught.value.code) == (name, grpc.StatusCode.UNKNOWN)


@pytest.mark.parametrize("timeout_s", [0, 5])
async def test_commands_and_their_deadlines(case: Case, timeout_s: int) -> None:
    reply = pb.ExecSyncResponse(stdout=b"o", stderr=b"e", exit_code=3)
    case.will("ExecSync", reply)
    assert await case.engine.exec_sync("c1", ["a", "b"], timeout_s) == ExecResult(b"o", b"e", 3)
    asked = case.last
    assert (asked.container_id, list(asked.cmd), asked.timeout) == ("c1", ["a", "b"], timeout_s)
    if timeout_s:
        assert case.deadline_s is not None
        assert 120 < case.deadline_s <= 127
    else:
        assert case.deadline_s is None or case.deadline_s > 1e6


async def test_addresses_of_streams(case: Case) -> None:
    case.will("Exec", pb.ExecResponse(url="http://e"))
    request = pb.ExecRequest(container_id="c1", cmd=["a"])
    assert await case.engine.exec_url(request) == "http://e"
    assert case.last == request
    case.will("Attach", pb.AttachResponse(url="http://a"))
    assert await case.engine.attach_url(pb.AttachRequest(container_id="c1")) == "http://a"
    case.will("PortForward", pb.PortForwardResponse(url="http://p"))
    assert await case.engine.port_forward_url("s1", [80, 90]) == "http://p"
    assert (case.last.pod_sandbox_id, list(case.last.port)) == ("s1", [80, 90])


async def test_statistics(case: Case) -> None:
    stats = [pb.ContainerStats(attributes=pb.ContainerAttributes(id="c1"))]
    case.will("ListContainerStats", pb.ListContainerStatsResponse(stats=stats))
    assert list(await case.engine.container_stats()) == stats
    of_pods = [pb.PodSandboxStats(attributes=pb.PodSandboxAttributes(id="s1"))]
    case.will("ListPodSandboxStats", pb.ListPodSandboxStatsResponse(stats=of_pods))
    assert list(await case.engine.sandbox_stats()) == of_pods
    case.will("ListPodSandboxStats", grpc.StatusCode.UNIMPLEMENTED)
    assert list(await case.engine.sandbox_stats()) == []
    case.will("ListPodSandboxStats", grpc.StatusCode.UNKNOWN)
    with pytest.raises(CriError):
        await case.engine.sandbox_stats()


async def test_images(case: Case) -> None:
    engine = case.engine
    listed = [pb.Image(id="i1"), pb.Image(id="i2")]
    case.will("ListImages", pb.ListImagesResponse(images=listed))
    assert list(await engine.images()) == listed
    case.will("ImageStatus", pb.ImageStatusResponse(image=pb.Image(id="i1")))
    image = await engine.image("r:1")
    assert image == pb.Image(id="i1")
    assert case.last.image.image == "r:1"
    for nothing in (pb.ImageStatusResponse(), pb.ImageStatusResponse(image=pb.Image())):
        case.will("ImageStatus", nothing)
        assert await engine.image("r:1") is None
    case.will("PullImage", pb.PullImageResponse(image_ref="i1"))
    spec, auth = pb.ImageSpec(image="r:1"), pb.AuthConfig(username="u")
    sandbox = pb.PodSandboxConfig(hostname="h")
    assert await engine.pull_image(spec, auth, sandbox) == "i1"
    assert (case.last.image, case.last.auth, case.last.sandbox_config) == (spec, auth, sandbox)
    assert case.deadline_s is None or case.deadline_s > 1e6
    usage = pb.FilesystemUsage(timestamp=5)
    case.will("ImageFsInfo", pb.ImageFsInfoResponse(image_filesystems=[usage]))
    assert list((await engine.image_filesystems()).image_filesystems) == [usage]


async def test_events_as_they_come(case: Case) -> None:
    events = [pb.ContainerEventResponse(container_id=name) for name in ("c1", "c2")]
    case.will("GetContainerEvents", events)
    assert [event async for event in case.engine.events()] == events


async def test_stream_requests_wait_for_an_engine_that_restarts(tmp_path: Path) -> None:
    calls: dict[str, Callable[[Engine], Awaitable[str]]] = {
        "Exec": lambda engine: engine.exec_url(pb.ExecRequest(container_id="c1")),
        "Attach": lambda engine: engine.attach_url(pb.AttachRequest(container_id="c1")),
        "PortForward": lambda engine: engine.port_forward_url("s1", [80]),
    }
    handler = Answering()
    handler.replies = {name: getattr(pb, f"{name}Response")(url="http://e") for name in calls}
    endpoint = f"unix://{tmp_path}/e.sock"
    for call in calls.values():
        async with CriClient(endpoint) as client:
            engine = Engine(client)
            # Two failures: gRPC connects again after the second backoff only.
            for _ in range(2):
                with pytest.raises(CriError) as failed:
                    await engine.version()
                assert failed.value.code is grpc.StatusCode.UNAVAILABLE
            pending = asyncio.ensure_future(call(engine))
            server = aio.server()
            server.add_generic_rpc_handlers((handler,))
            server.add_insecure_port(endpoint)
            await server.start()
            assert await pending == "http://e"
            await server.stop(None)


async def test_stream_requests_to_an_engine_that_stays_away_fail(tmp_path: Path) -> None:
    async with CriClient(f"unix://{tmp_path}/e.sock") as client:
        with pytest.raises(CriError) as failed:
            await Engine(client, 0.05).exec_url(pb.ExecRequest())
    assert failed.value.code is grpc.StatusCode.UNAVAILABLE


async def test_of_an_engine_that_sends_more_the_end_of_an_output_is_kept(case: Case) -> None:
    long = b"first" + b"x" * OUTPUT_TAIL_BYTES + b"last"
    case.will("ExecSync", pb.ExecSyncResponse(stdout=long, stderr=long, exit_code=1))
    result = await case.engine.exec_sync("c1", ["a"], 0)
    assert result.stdout == result.stderr == long[-OUTPUT_TAIL_BYTES:]


async def test_an_output_of_a_megabyte_of_another_engine_is_an_error(case: Case) -> None:
    case.will("ExecSync", pb.ExecSyncResponse(stdout=b"x" * 2**20, exit_code=1))
    with pytest.raises(CriError) as caught:
        await case.engine.exec_sync("c1", ["a"], 0)
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    result = await case.engine.run_command("c1", ["a"])
    assert len(result.stdout) == 2**20
