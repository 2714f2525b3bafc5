"""The node's own object: how it is registered, kept up to date and spoken of in events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage.api.errors import NotFoundError, UnavailableError
from moorage.api.nodes import NodeRuntimeHandler, Taint
from moorage.node.machine.node_object import NodeObject
from moorage.node.machine.node_status import NodeShutdown
from moorage.node.machine.pressure import NodePressure
from moorage.node.options import NodeOptions
from moorage.wire.client.resources import NODES
from moorage.wire.client.rest import PatchType
from moorage.wire.cri import pb
from tests.clocks import FakeClock, settle
from tests.controllers.memory import MemoryClient
from tests.executors import InlineExecutor
from tests.node.machine.test_node_status import FACTS


class FakeHealth:
    """An engine that is well, unless the test says otherwise."""

    engine_name, engine_version = "moorage", "1"
    has_groups_policy: bool | None = None
    network_problem: str | None = None
    is_ready = True

    def __init__(self) -> None:
        self.runtime_problem: str | None = None
        self.handlers: tuple[NodeRuntimeHandler, ...] = (NodeRuntimeHandler(name="runc"),)
        self.listener: Any = None

    def add_listener(self, listener: Any) -> None:
        self.listener = listener

    async def wait_checked(self) -> None:
        await asyncio.sleep(0)


class FakeRecorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str, str]] = []

    def record(self, about: Any, type_: str, reason: str, message: str) -> None:
        self.events.append((about.kind, about.uid, type_, reason, message))


class FakeImages:
    def __init__(self) -> None:
        self.listed = [pb.Image(id="i", repo_tags=["r:1"], size=5)]

    async def images(self) -> list[pb.Image]:
        return self.listed


class Case:
    def __init__(self, root: Path, **options: Any) -> None:
        self.clock = FakeClock()
        self.client: Any = MemoryClient(self.clock)
        self.health, self.recorder, self.images = FakeHealth(), FakeRecorder(), FakeImages()
        client: Any = self.client
        health: Any = self.health
        recorder: Any = self.recorder
        engine: Any = self.images
        self.pressure, self.shutdown = NodePressure(), NodeShutdown()
        self.options = NodeOptions(name="n1", root_dir=root, **options)
        self.object = NodeObject(
            client=client, engine=engine, health=health, recorder=recorder,
            clock=self.clock, options=self.options, facts=FACTS, addresses=("10.0.0.1",),
            capacity={"cpu": "4"}, allocatable={"cpu": "3"}, pressure=self.pressure,
            shutdown=self.shutdown,
        )  # fmt: skip

    async def later(self, seconds: float = 0) -> None:
        await settle(100)
        if seconds:
            self.clock.advance(seconds)
            await self.later()

    @property
    def patches(self) -> list[Any]:
        return list(self.client.asked("patch", NODES))

    @property
    def node(self) -> dict[str, Any]:
        node = self.client.find(NODES, "n1")
        assert node is not None
        return dict(node)


@asynccontextmanager
async def keeping(case: Case) -> AsyncIterator[Case]:
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    task = asyncio.ensure_future(case.object.run())
    await case.later()
    try:
        yield case
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled(), task.exception()


async def test_the_node_is_registered_with_all_that_is_known(tmp_path: Path) -> None:
    taint = Taint(key="k", value="v", effect="NoSchedule")
    case = Case(tmp_path, labels={"zone": "a"}, taints=(taint,), hostname="h1")
    assert case.object.node is None
    async with keeping(case):
        (creation,) = case.client.asked("create", NODES)
        meta = creation.body["metadata"]
        assert meta == {
            "name": "n1",
            "labels": {
                "kubernetes.io/hostname": "h1", "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "zone": "a",
            },
        }  # fmt: skip
        assert creation.body["spec"]["taints"] == (taint,)
        status = case.node["status"]
        assert status["nodeInfo"]["operatingSystem"] == "linux"
        assert status["nodeInfo"]["containerRuntimeVersion"] == "moorage://1"
        assert [list(image["names"]) for image in status["images"]] == [["r:1"]]
        assert [handler["name"] for handler in status["runtimeHandlers"]] == ["runc"]
        assert (status["capacity"], status["allocatable"]) == ({"cpu": "4"}, {"cpu": "3"})
        assert [address["address"] for address in status["addresses"]] == ["10.0.0.1", "h1"]
        await asyncio.wait_for(case.object.wait_registered(), 5)
        assert case.object.node is not None
        assert case.recorder.events[0] == (
            "Node",
            "n1",
            "Normal",
            "Starting",
            "Starting node agent.",
        )
        ready = ("Node", "n1", "Normal", "NodeReady", "Node n1 status is now: NodeReady")
        assert ready in case.recorder.events


async def test_a_node_that_is_there_is_kept_and_its_labels_are_corrected(tmp_path: Path) -> None:
    case = Case(tmp_path, labels={"zone": "a"})
    old = {"metadata": {"name": "n1", "labels": {"zone": "b", "mine": "x",
                                                "kubernetes.io/os": "linux"}},
           "spec": {"unschedulable": True}, "status": {}}  # fmt: skip
    case.client.put(NODES, old)
    async with keeping(case):
        labels = case.patches[0]
        assert labels.body == {
            "metadata": {"labels": {"kubernetes.io/hostname": "host", "kubernetes.io/arch": "amd64",
                                    "zone": "a"}},
        }  # fmt: skip
        assert case.node["metadata"]["labels"]["mine"] == "x"
        assert case.node["spec"] == {"unschedulable": True}
        status = case.patches[1]
        assert status.more == {"kind": PatchType.STRATEGIC, "subresource": "status"}
        assert case.node["status"]["capacity"] == {"cpu": "4"}


async def test_correct_labels_are_not_written_again(tmp_path: Path) -> None:
    case = Case(tmp_path)
    labels = {"kubernetes.io/hostname": "host", "kubernetes.io/os": "linux",
              "kubernetes.io/arch": "amd64"}  # fmt: skip
    case.client.put(NODES, {"metadata": {"name": "n1", "labels": labels}, "spec": {}, "status": {}})
    async with keeping(case):
        assert [patch.more.get("subresource") for patch in case.patches] == ["status"]


@pytest.mark.slow
async def test_the_status_is_written_when_it_changes_or_is_due(tmp_path: Path) -> None:
    case = Case(tmp_path)
    async with keeping(case):
        await case.later(11)
        assert case.patches == []
        case.images.listed = []
        await case.later(11)
        (change,) = case.patches
        assert set(change.body["status"]) == {"conditions", "images"}
        await case.later(11)
        assert len(case.patches) == 1
        await case.later(300)
        assert len(case.patches) == 2
        assert set(case.patches[-1].body["status"]) == {"conditions"}


async def test_engine_problem_is_reported_at_once(tmp_path: Path) -> None:
    case = Case(tmp_path)
    async with keeping(case):
        case.health.runtime_problem = "container runtime is down"
        case.health.listener()
        await case.later()
        by_type = {condition["type"]: condition for condition in case.node["status"]["conditions"]}
        assert (by_type["Ready"]["status"], by_type["Ready"]["reason"]) == (
            "False",
            "KubeletNotReady",
        )
        assert "container runtime is down" in by_type["Ready"]["message"]
        event = ("Node", "n1", "Normal", "NodeNotReady", "Node n1 status is now: NodeNotReady")
        assert case.recorder.events.count(event) == 1
        # Images are not asked for meanwhile.
        assert list(case.node["status"]["images"][0]["names"]) == ["r:1"]


@pytest.mark.slow
@pytest.mark.parametrize("failure", [UnavailableError("busy"), NotFoundError.of("nodes", "n1")])
async def test_a_write_that_fails_is_tried_again(tmp_path: Path, failure: Exception) -> None:
    case = Case(tmp_path)
    async with keeping(case):
        case.client.failures.append(("patch", NODES.plural, failure))
        if isinstance(failure, NotFoundError):
            case.client.drop(NODES, "n1", "")
        case.images.listed = []
        await case.later(11)
        await case.later(2)
        assert "images" not in case.node["status"] or case.node["status"]["images"] == []


async def test_the_watched_object_takes_the_place_of_the_older(tmp_path: Path) -> None:
    case = Case(tmp_path)
    async with keeping(case):
        newer: Any = object()
        case.object.seen(newer)
        assert case.object.node is newer
        case.object.seen(case.client.typed(NODES, case.node))


@pytest.mark.slow
async def test_resources_that_others_give_the_node_stay_and_are_allocatable(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path)
    async with keeping(case):
        given = {"capacity": {**case.node["status"]["capacity"], "example.com/dongle": "3"}}
        newer = {**case.node, "status": {**case.node["status"], **given}}
        case.client.put(NODES, newer)
        case.object.seen(case.client.typed(NODES, case.node))
        await case.later(11)
        (change,) = case.patches
        allocatable = {"cpu": "3", "example.com/dongle": "3", "$patch": "replace"}
        assert change.body["status"]["allocatable"] == allocatable
        assert "capacity" not in change.body["status"]
        # The client in memory does not know the directive.
        del case.node["status"]["allocatable"]["$patch"]
        case.object.seen(case.client.typed(NODES, case.node))
        await case.later(22)
        assert len(case.patches) == 1


@pytest.mark.parametrize(
    ("conditions", "reasons"),
    [
        ((), {"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"}),
        (
            ("MemoryPressure", "DiskPressure", "PIDPressure"),
            {"NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID"},
        ),
    ],
)
async def test_shortages_are_reported_as_the_kubelet_does(
    tmp_path: Path, conditions: tuple[str, ...], reasons: set[str]
) -> None:
    case = Case(tmp_path)
    case.pressure.update(conditions)
    async with keeping(case):
        recorded = {reason for _, _, _, reason, _ in case.recorder.events}
        assert recorded == {*reasons, "Starting", "NodeReady"}
        messages = {reason: message for _, _, _, reason, message in case.recorder.events}
        for reason in reasons:
            assert messages[reason] == f"Node n1 status is now: {reason}"


async def test_a_node_that_shuts_down_is_not_ready(tmp_path: Path) -> None:
    case = Case(tmp_path)

    def ready() -> tuple[Any, ...]:
        (found,) = [one for one in case.node["status"]["conditions"] if one["type"] == "Ready"]
        return tuple(found[name] for name in ("status", "reason", "message"))

    async with keeping(case):
        case.shutdown.update(True)
        case.object.report_shutdown()
        await case.later()
        assert ready() == ("False", "KubeletNotReady", "node is shutting down")
        case.shutdown.update(False)
        case.object.report_shutdown()
        await case.later()
        assert ready() == ("True", "KubeletReady", "kubelet is posting ready status")
    assert [event[2:] for event in case.recorder.events if event[3] == "Shutdown"] == [
        ("Normal", "Shutdown", "Shutdown manager detected shutdown event"),
        ("Normal", "Shutdown", "Shutdown manager detected shutdown cancellation"),
    ]
