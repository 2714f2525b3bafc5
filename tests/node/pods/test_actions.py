"""Each action of a pod's life when it fails: the event, the error, and what is not done."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from moorage.api.errors import NotFoundError, StatusError
from moorage.api.nodes import NodeRuntimeHandler, NodeRuntimeHandlerFeatures
from moorage.linux.cgroup_control import CgroupError
from moorage.node.config.errors import ConfigError
from moorage.node.paths import NodePaths
from moorage.node.pod_facts.containers import members
from moorage.node.pod_facts.errors import SyncError, TeardownError
from moorage.node.pod_facts.resources import allocation_of
from moorage.node.pods.actions import PodActions
from moorage.node.pods.allocations import AllocationRecord
from moorage.node.pods.plan import Kill, NewSandbox, Reason
from moorage.node.pods.pod_network import PodNetworkError
from moorage.node.pods.start_timeline import StartTimeline
from moorage.node.pods.starting import HookFailedError
from moorage.node.runtime.views import PodView, pod_view
from moorage.node.volumes.kinds import VolumeError
from moorage.wire.client.rest import UnreachableError
from moorage.wire.cri import CriError
from tests.clocks import FakeClock
from tests.node.objects import UID, a_pod, a_sandbox, a_view, engine_has
from tests.node.pods.lives import FakeEvents

CRI = CriError("m", grpc.StatusCode.UNKNOWN, "engine says no")
POD = a_pod(initContainers=[{"name": "setup", "image": "i"}])
RECORD = AllocationRecord(allocation_of(POD))


class Node:
    """Parts whose methods keep their calls and fail when a test says so."""

    def __init__(self, root: Path) -> None:
        self.calls: list[str] = []
        self.errors: dict[str, BaseException] = {}
        self.answers: dict[str, Any] = {}
        self.view = PodView(UID)
        self.events = FakeEvents()
        part = self.part
        self.context: Any = SimpleNamespace(
            events=self.events,
            paths=NodePaths(root, root / "logs"),
            host_ips=("10.0.0.1",),
            allocatable=lambda: {"cpu": "1"},
            options=SimpleNamespace(pod_pids_limit=7),
            health=SimpleNamespace(network_problem=None, handlers=()),
            observer=part("observer", "refresh_pod", "refresh_sandbox", view=lambda _: self.view,
                          forget_container=self.note("forget container"),
                          forget_sandbox=self.note("forget sandbox")),
            classes=part("classes", "handler", known_handler=lambda *_: self.answers["known"]),
            cgroups=SimpleNamespace(read=lambda _: self.answers.get("cgroup"),
                                    memory_usage_bytes=lambda _: self.answers.get("usage"),
                                    ensure=self.note("ensure"), remove=self.note("remove cgroup")),
            allocations=SimpleNamespace(write=self.note("record")),
            volumes=part("volumes", "mount", "refresh", "remove"),
            sandboxes=part("sandboxes", "create", "config"),
            stopper=part("stopper", "kill", "stop_pod"),
            starter=part("starter", "start"),
            engine=part("engine", "remove_container", "remove_sandbox"),
            writer=part("writer", "wait_written"),
            client=part("client", "delete"),
            logs=part("logs", "remove_pod"),
            network=part("network", "admit"),
        )  # fmt: skip
        context: Any = self.context
        self.actions = PodActions(context)

    def note(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            self._call(name, arguments)

        return call

    def part(self, name: str, *methods: str, **others: Any) -> SimpleNamespace:
        def method(method_name: str) -> Any:
            async def call(*arguments: Any, **_: Any) -> Any:
                return self._call(f"{name}.{method_name}", arguments)

            return call

        return SimpleNamespace(
            **{method_name: method(method_name) for method_name in methods}, **others
        )

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        texts = [argument for argument in arguments if isinstance(argument, str)]
        self.calls.append(" ".join((name, *texts)))
        if name in self.errors:
            raise self.errors[name]
        return self.answers.get(name)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_pod_on_the_hosts_network_has_the_hosts_addresses(node: Node) -> None:
    node.view = pod_view(UID, [a_sandbox()], [])
    assert node.actions.downward_inputs(a_pod()).pod_ips == ("10.1.0.5", "fd00::5")[:1]
    inputs = node.actions.downward_inputs(a_pod(hostNetwork=True))
    assert (inputs.pod_ips, inputs.host_ips) == (("10.0.0.1",), ("10.0.0.1",))
    assert inputs.allocatable == {"cpu": "1"}


@pytest.mark.parametrize(
    ("known", "wanted"), [(None, False), ("plain", False), ("recursive", True)]
)
def test_read_only_mounts_are_recursive_where_the_pods_handler_does_that(
    node: Node, known: str | None, wanted: bool
) -> None:
    features = NodeRuntimeHandlerFeatures(recursive_read_only_mounts=True)
    node.context.health.handlers = (
        NodeRuntimeHandler(name="plain"),
        NodeRuntimeHandler(name="recursive", features=features),
    )
    node.answers["known"] = known
    assert node.actions.has_recursive_read_only(POD, node.view) == wanted


async def test_directories_and_the_cgroup_are_made(node: Node, tmp_path: Path) -> None:
    await node.actions.prepare(POD, RECORD)
    assert [call.partition(" ")[0] for call in node.calls] == ["record", "ensure"]
    assert (tmp_path / "logs").is_dir()
    assert node.context.paths.pod(UID).root.is_dir()
    node.view = pod_view(UID, [a_sandbox()], [])
    await node.actions.prepare(POD, RECORD)
    assert node.calls[-1] == "classes.handler"


@pytest.mark.parametrize(
    ("error", "reason", "event"),
    [
        (CgroupError(errno.ENOSPC, "no room"), "PodCgroupError", "FailedCreatePodContainer"),
        (OSError(errno.EROFS, "read-only"), "PodDirectoryError", "Failed"),
    ],
)
async def test_failed_preparation_fails_the_sync(
    node: Node, error: OSError, reason: str, event: str
) -> None:
    node.errors["ensure"] = error
    with pytest.raises(SyncError) as hindered:
        await node.actions.prepare(POD, RECORD)
    assert hindered.value.reason == reason
    assert node.events.recorded == [f"{event}: {hindered.value}"]


async def test_a_handler_that_is_not_known_hinders_nothing(node: Node) -> None:
    node.view = pod_view(UID, [a_sandbox()], [])
    node.errors["classes.handler"] = OSError("disk")
    await node.actions.prepare(POD, RECORD)
    assert node.events.recorded == []


async def test_volumes_hinder_the_pod_and_a_refresh_does_not(node: Node) -> None:
    node.errors["volumes.mount"] = node.errors["volumes.refresh"] = VolumeError("v", "no secret")
    with pytest.raises(SyncError, match="no secret") as hindered:
        await node.actions.mount(POD)
    assert hindered.value.reason == "FailedMount"
    await node.actions.refresh(POD)
    assert node.events.recorded == [f"FailedMount: {hindered.value}"]
    node.errors.clear()
    node.answers["volumes.mount"] = {"v": 1}
    mounted: Any = await node.actions.mount(POD)
    assert mounted == {"v": 1}


NEW = NewSandbox(attempt=1, replaced=None)
REPLACING = NewSandbox(attempt=2, replaced="s0")


async def test_a_sandbox_is_made_once_the_network_is_ready(node: Node) -> None:
    node.answers["sandboxes.create"] = a_sandbox(ips=())
    node.context.health.network_problem = "no file"
    with pytest.raises(SyncError, match="network is not ready: no file") as hindered:
        await node.actions.replace_sandbox(POD, node.view, NEW)
    assert hindered.value.reason == "NetworkNotReady"
    assert node.events.reasons == ["NetworkNotReady"]
    await node.actions.replace_sandbox(a_pod(hostNetwork=True), node.view, NEW)
    node.context.health.network_problem = None
    await node.actions.replace_sandbox(POD, node.view, NEW)
    assert node.calls == ["sandboxes.create", "sandboxes.create"]


async def test_what_an_earlier_sandbox_left_is_ended_and_its_init_containers_forgotten(
    node: Node,
) -> None:
    view = a_view(engine_has("app"), engine_has("setup"))
    setup = next(container for container in view.containers if container.name == "setup")
    node.answers["sandboxes.create"] = a_sandbox()
    await node.actions.replace_sandbox(POD, view, REPLACING)
    assert node.calls == [
        "stopper.stop_pod", f"engine.remove_container {setup.id}", f"forget container {setup.id}",
        "sandboxes.create",
    ]  # fmt: skip
    assert node.events.reasons == ["SandboxChanged"]


@pytest.mark.parametrize(
    ("place", "error", "reason", "event"),
    [
        ("sandboxes.create", SyncError("Why", "what"), "Why", "FailedCreatePodSandBox: what"),
        ("sandboxes.create", CRI, "FailedKillPod", f"FailedKillPod: error killing pod: {CRI}"),
        (
            "stopper.stop_pod",
            TeardownError("stuck"),
            "FailedKillPod",
            "FailedKillPod: error killing pod: stuck",
        ),
    ],
)
async def test_failed_sandbox_fails_the_sync(
    node: Node, place: str, error: Exception, reason: str, event: str
) -> None:
    node.errors[place] = error
    with pytest.raises(SyncError) as hindered:
        await node.actions.replace_sandbox(POD, node.view, REPLACING)
    assert hindered.value.reason == reason
    assert node.events.recorded[-1] == event


APP = next(iter(members(POD.spec)))


async def start(node: Node, view: PodView | None = None, handler: str | None = "h") -> None:
    sandbox = a_sandbox(handler=handler)
    timeline = StartTimeline(POD, FakeClock())
    await node.actions.start(POD, APP, view or node.view, sandbox, {}, timeline)


async def test_the_handler_is_asked_for_where_the_sandbox_does_not_say_it(node: Node) -> None:
    node.answers["known"] = None
    await start(node)
    assert node.calls == ["sandboxes.config h", "network.admit", "starter.start"]
    node.calls.clear()
    node.answers["classes.handler"] = "x"
    await start(node, handler=None)
    assert node.calls == [
        "classes.handler", "sandboxes.config x", "network.admit", "starter.start",
    ]  # fmt: skip


async def test_no_container_starts_before_the_pods_rules_are_in_force(node: Node) -> None:
    node.errors["network.admit"] = PodNetworkError("no nftables")
    with pytest.raises(SyncError, match="network is not ready: no nftables") as failed:
        await start(node)
    assert failed.value.reason == "NetworkNotReady"
    assert "starter.start" not in node.calls
    assert node.events.recorded[-1] == "NetworkNotReady: network is not ready: no nftables"


@pytest.mark.parametrize("error", [ConfigError("why"), OSError("why")])
async def test_failed_configuration_is_a_config_error(node: Node, error: Exception) -> None:
    node.errors["sandboxes.config"] = error
    with pytest.raises(SyncError, match="why") as failed:
        await start(node)
    assert failed.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize(
    ("expected", "starts"),
    [(a_sandbox(), True), (a_sandbox(is_ready=False), False), (None, False), (CRI, True)],
)
async def test_in_a_sandbox_that_was_stopped_nothing_is_started_again(
    node: Node, expected: Any, starts: bool
) -> None:
    node.answers["known"] = None
    if expected is CRI:
        node.errors["observer.refresh_sandbox"] = CRI
    node.answers["observer.refresh_sandbox"] = expected
    await start(node, a_view(engine_has("app")))
    assert ("starter.start" in node.calls) == starts
    assert (f"observer.refresh_pod {UID}" in node.calls) == (expected is None)


@pytest.mark.parametrize("serves", [True, False])
async def test_a_failed_start_counts_only_while_the_sandbox_serves(
    node: Node, serves: bool
) -> None:
    node.answers["known"] = None
    node.answers["observer.refresh_sandbox"] = a_sandbox(is_ready=serves)
    node.errors["starter.start"] = SyncError("Why", "what")
    if serves:
        with pytest.raises(SyncError):
            await start(node)
    else:
        await start(node)


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_container_whose_hook_failed_is_ended(node: Node, is_there: bool) -> None:
    node.answers["known"] = None
    container = a_view(engine_has("app")).containers[0] if is_there else None
    node.errors["starter.start"] = HookFailedError("hook", container)
    with pytest.raises(HookFailedError):
        await start(node)
    assert ("stopper.kill" in node.calls) == is_there


async def test_what_does_not_end_is_unfinished(node: Node) -> None:
    kill = Kill(a_view(engine_has("app")).containers[0], "why", Reason.HOOK)
    await node.actions.kill(POD, kill)
    node.errors["stopper.kill"] = TeardownError("stuck")
    with pytest.raises(TeardownError, match="stuck"):
        await node.actions.kill(POD, kill)


@pytest.mark.parametrize("error", [TeardownError("stuck"), CRI])
async def test_pod_that_does_not_stop_is_an_error(node: Node, error: Exception) -> None:
    await node.actions.stop(POD, node.view, 5)
    assert node.calls == ["stopper.stop_pod", f"observer.refresh_pod {UID}"]
    node.view = a_view(engine_has("app"))
    with pytest.raises(TeardownError, match="something of the pod still runs"):
        await node.actions.stop(POD, node.view, 5)
    assert node.events.recorded == []
    node.errors["stopper.stop_pod"] = error
    with pytest.raises(TeardownError, match="error killing pod"):
        await node.actions.stop(POD, node.view, 5)
    assert node.events.recorded == [f"FailedKillPod: error killing pod: {error}"]


@pytest.mark.parametrize("place", ["remove cgroup", "volumes.remove"])
async def test_failed_cleanup_is_a_teardown_error(node: Node, place: str) -> None:
    await node.actions.clean(POD)
    assert [call.split("/")[0].strip() for call in node.calls] == [
        node.calls[0].split("/")[0].strip(), f"volumes.remove {UID}",
    ]  # fmt: skip
    node.errors[place] = OSError(errno.EBUSY, "busy")
    with pytest.raises(TeardownError, match="busy"):
        await node.actions.clean(POD)
    assert node.events.recorded == [
        "VolumeFailedDelete: error removing the pod's volumes: [Errno 16] busy"
    ] * (place == "volumes.remove")


async def test_the_api_forgets_a_pod_whose_last_status_is_written(node: Node) -> None:
    await node.actions.delete(POD)
    assert node.calls == [f"writer.wait_written {UID}"]
    node.answers["writer.wait_written"] = True
    await node.actions.delete(POD)
    assert node.calls[-1] == "client.delete web shop"
    node.errors["client.delete"] = NotFoundError.of("pods", "web")
    await node.actions.delete(POD)
    for error in (StatusError("why"), UnreachableError("why")):
        node.errors["client.delete"] = error
        with pytest.raises(TeardownError, match="why"):
            await node.actions.delete(POD)


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("engine.remove_sandbox", CRI), ("engine.remove_container", CRI),
        ("logs.remove_pod", OSError("disk")),
    ],
)  # fmt: skip
async def test_what_the_engine_has_of_a_pod_goes(node: Node, place: str, error: Exception) -> None:
    node.view = a_view(engine_has("app"))
    sandbox, container = node.view.sandboxes[0].id, node.view.containers[0].id
    await node.actions.discard(POD)
    assert node.calls == [
        f"engine.remove_sandbox {sandbox}", f"forget sandbox {sandbox}",
        f"engine.remove_container {container}", f"forget container {container}",
        "logs.remove_pod",
    ]  # fmt: skip
    node.errors[place] = error
    with pytest.raises(TeardownError):
        await node.actions.discard(POD)
