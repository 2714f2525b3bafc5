"""The part that runs the node agent: what it is given, and what is announced when it is ready."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
import pytest

from moorage.api.errors import StatusError
from moorage.api.meta import ObjectReference
from moorage.api.nodes import Node
from moorage.cluster.access.credentials import Credentials
from moorage.cluster.engine import handlers as engine_handlers
from moorage.cluster.engine.paths import cgroup_root
from moorage.cluster.layout import CLUSTER_DOMAIN, NODE_CLIENT_NAME, Layout
from moorage.cluster.parts import node as module
from moorage.cluster.reservations import system_reserved
from moorage.node.agent import COMPONENT
from moorage.node.images.verification import Verification
from moorage.runtimes.probing.cache import ProbedHandler
from moorage.runtimes.probing.evidence import HandlerState, KnownHandler, Working
from moorage.wire.client.resources import NODES, RUNTIME_INSTALLATIONS
from moorage.wire.client.rest import UnreachableError
from moorage.wire.cri import CriError, engine_pb
from tests.clocks import settle
from tests.cluster.test_settings import SETTINGS
from tests.linux.hosts import linux_host


def test_the_options_of_the_agent(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    credentials = Credentials(layout)
    host = linux_host(memory_bytes=8 << 30, max_pids=1000, oom_score_floor=-999)
    settings = msgspec.structs.replace(
        SETTINGS, pod_pids_limit=7, seccomp_default=True, gates={"RuntimeClass": False},
        image_verification="AlwaysVerify", image_allowlist=("a/*",),
    )  # fmt: skip
    options = module._options(layout, settings, credentials, host)
    server = options.server
    assert server is not None
    assert (server.certificate_file, server.key_file, server.client_ca_file) == (
        credentials.node_server.certificate, credentials.node_server.key,
        credentials.authority.certificate,
    )  # fmt: skip
    assert (server.address, server.port) == ("192.0.2.7", 10250)
    assert server.api_server_names == {NODE_CLIENT_NAME}
    passed = {field.name: getattr(options, field.name) for field in fields(options)}
    wanted = {
        "name": "n1", "cluster_id": "0a1b2c3d", "node_ip": "192.0.2.7", "root_dir": layout.node,
        "pod_logs_dir": layout.pod_logs, "container_logs_dir": None,
        "cgroup_root": cgroup_root(settings), "pod_pids_limit": 7,
        "image_verification": Verification("AlwaysVerify", ("a/*",)),
        "reserved": system_reserved(8 << 30, 1000), "seccomp_default": True,
        "oom_score_floor": -999, "cluster_domain": CLUSTER_DOMAIN,
        "service_environment": {
            "KUBERNETES_SERVICE_HOST": "10.244.0.1", "KUBERNETES_SERVICE_PORT": "6443",
            "KUBERNETES_SERVICE_PORT_HTTPS": "6443",
        },
        "listeners": settings.listeners, "gates": {"RuntimeClass": False},
    }  # fmt: skip
    assert {name: passed[name] for name in wanted} == wanted


async def test_an_engine_is_waited_for_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    monkeypatch.setattr(module, "_ENGINE_PATIENCE_S", 0.02)
    monkeypatch.setattr(module, "_POLL_S", 0.001)
    await module._await_engine(path)
    monkeypatch.setattr(module, "_ENGINE_PATIENCE_S", 100)
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        # Left by an engine that was killed: it is there, and takes no calls.
        assert not module._accepts_connections(path)
        waiting = asyncio.ensure_future(module._await_engine(path))
        await settle()
        assert not waiting.done()
        engine.listen()
        assert module._accepts_connections(path)
        async with asyncio.timeout(20):
            await waiting


class Cri:
    """Streams of handlers, one after another; the last ends the test."""

    engine = SimpleNamespace(WatchHandlers="watch")

    def __init__(self, *streams: list[Any]) -> None:
        self.streams = list(streams)

    async def stream(self, method: str, request: Any) -> AsyncIterator[engine_pb.Handlers]:
        assert (method, request) == ("watch", engine_pb.WatchHandlersRequest())
        if not self.streams:
            await asyncio.get_running_loop().create_future()
        for outcome in self.streams.pop(0):
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome


async def test_handler_changes_are_reported_after_the_engine_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b, c = (engine_pb.Handlers(complaints=[name]) for name in "abc")
    cri: Any = Cri([a, b, CriError("m", grpc.StatusCode.UNAVAILABLE, "away")], [c])
    recorded: list[Any] = []
    compared: list[Any] = []

    def news(before: Any, now: Any) -> list[Any]:
        compared.append((before, now))
        return [SimpleNamespace(type="Normal", reason="R", message=now.complaints[0])]

    monkeypatch.setattr(engine_handlers, "handler_events", news)
    monkeypatch.setattr(engine_handlers, "_RETRY_S", 0)
    about = ObjectReference(kind="Node", name="n1")
    recorder: Any = SimpleNamespace(record=lambda *arguments: recorded.append(arguments))
    noted: list[Any] = []

    async def note(handlers: Any) -> None:
        noted.append(handlers)

    events = engine_handlers.NodeEvents(recorder, about)
    following = asyncio.ensure_future(engine_handlers.follow_handlers(cri, events, note))
    await settle(100)
    following.cancel()
    assert compared == [(None, a), (a, b), (b, c)]
    assert recorded == [(about, "Normal", "R", name) for name in "abc"]
    assert noted == [a, b, c]


async def test_an_engine_that_does_not_announce_handlers_is_not_followed() -> None:
    refusal = CriError("WatchHandlers", grpc.StatusCode.UNIMPLEMENTED, "unknown service")
    other: Any = Cri([refusal])
    none: Any = None
    async with asyncio.timeout(5):
        await engine_handlers.follow_handlers(other, none, none)


def a_node(status: str, *handlers: str) -> Node:
    result = [{"name": name} for name in handlers]
    condition = {"type": "Ready", "status": status}
    return msgspec.convert(
        {"metadata": {"name": "n1"},
         "status": {"conditions": [condition], "runtimeHandlers": result}}, Node,
    )  # fmt: skip


@pytest.mark.parametrize("is_settled", [True, False])
async def test_the_part_is_ready_once_the_node_and_its_classes_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_settled: bool
) -> None:
    steps: list[Any] = []
    looks: list[Any] = []

    class Informer:
        def __init__(self, _client: object, resource: Any, field_selector: str) -> None:
            steps.append((resource, field_selector))
            self._objects: list[Any] = []

        def __iter__(self) -> Iterator[Any]:
            return iter(self._objects)

        async def wait_synced(self) -> None:
            """The list is empty at first."""

        def add_handler(self, look: Any) -> None:
            def changed(before: Any, after: Any) -> None:
                self._objects = [] if after is None else [after]
                look(before, after)

            looks.append(changed)

        async def run(self) -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                steps.append("unfollowed")

    async def prepare(_settings: Any, _credentials: Any, handlers: Any) -> None:
        steps.append(("classes", handlers))

    async def wait_profiled(_client: Any, node: str, handlers: Any) -> None:
        steps.append(("profiled", node, set(handlers)))

    settled = asyncio.Event()
    if is_settled:
        settled.set()
    states = {
        "runc": HandlerState(
            handler=KnownHandler(name="runc"),
            working=Working.YES,
            probed=ProbedHandler(isolation="shared-kernel"),
        ),
        "kata": HandlerState(handler=KnownHandler(name="kata"), working=Working.NO),
        **{
            name: HandlerState(
                handler=KnownHandler(name=name), fingerprint="g", working=Working.YES
            )
            for name in ("gvisor", "runsc")
        },
    }
    discovery = SimpleNamespace(wait_settled=settled.wait, states=states)
    found: Any = SimpleNamespace(discovery=discovery)
    monkeypatch.setattr(module, "_PROBE_PATIENCE_S", 0.01)
    monkeypatch.setattr(module, "Informer", Informer)
    monkeypatch.setattr(module, "_prepare_api", prepare)
    monkeypatch.setattr(module, "_wait_profiled", wait_profiled)
    monkeypatch.setattr(module, "notify_ready", lambda: steps.append("ready"))
    none: Any = None
    announcing = asyncio.ensure_future(
        module._announce(none, SETTINGS, Credentials(Layout(tmp_path)), found)
    )
    await settle()
    look = looks[0]
    look(None, a_node("False", "old"))
    look(a_node("True"), None)
    await settle()
    assert steps == [(NODES, "metadata.name=n1")]
    look(None, a_node("True", "", "runc"))
    await announcing
    profiled = [("profiled", "n1", {"runc", "gvisor", "runsc"})] if is_settled else []
    classes = ("classes", {"runc": "shared-kernel", "gvisor": ""})
    assert steps[1:] == ["unfollowed", *profiled, classes, "ready"]


@pytest.mark.parametrize("error", [None, StatusError("no"), UnreachableError("no")])
@pytest.mark.parametrize(
    ("changes", "created"),
    [
        ({}, ["classes", "storage"]),
        ({"default_classes": False}, ["storage"]),
        ({"gates": {"RuntimeClass": False}}, ["storage"]),
        ({"without": ("controllers",)}, ["classes", "storage", "definitions"]),
    ],
)
async def test_classes_are_made_by_the_administrator_as_far_as_that_works(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    changes: dict[str, Any],
    created: list[str],
) -> None:
    asked: list[Any] = []

    @asynccontextmanager
    async def connected(*arguments: Any) -> AsyncIterator[str]:
        asked.append(arguments)
        yield "admin"

    def step(name: str) -> Any:
        async def call(*_: Any) -> None:
            asked.append(name)
            if error is not None:
                raise error

        return call

    monkeypatch.setattr(module, "connected", connected)
    monkeypatch.setattr(module, "create_classes", step("classes"))
    monkeypatch.setattr(module, "create_storage_class", step("storage"))
    monkeypatch.setattr(module, "install_definitions", step("definitions"))
    credentials = Credentials(Layout(tmp_path))
    settings = msgspec.structs.replace(SETTINGS, **changes)
    await module._prepare_api(settings, credentials, {"runc": ""})
    assert asked == [
        (settings, credentials, credentials.admin, "moorage-classes"),
        *(created if error is None else created[:1]),
    ]


@pytest.mark.parametrize("cri", ["", "unix:///other.sock"])
async def test_the_agent_runs_on_the_clusters_engine_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cri: str
) -> None:
    steps: list[Any] = []
    given: dict[str, Any] = {}
    ran = asyncio.Event()

    blocks: dict[str, tuple[Any, ...]] = {}

    @asynccontextmanager
    async def block(*arguments: Any) -> AsyncIterator[Any]:
        steps.append(arguments[-1])
        blocks[arguments[-1]] = arguments
        yield SimpleNamespace(endpoint=arguments[-1])

    def step(name: str) -> Any:
        async def call(*_: Any, **__: Any) -> None:
            steps.append(name)

        return call

    async def run_node(client: Any, engine: Any, options: Any, **more: Any) -> None:
        steps.append(("run", client.endpoint, engine.endpoint, options, sorted(more)))
        given.update(more, cri=engine)
        await settle()
        ran.set()

    passed: dict[str, tuple[Any, ...]] = {}

    class Recorder:
        def __init__(self, client: Any, component: str, host: str) -> None:
            assert client.endpoint == "moorage-node"
            steps.append((component, host))

        run = step("records")

    monkeypatch.setattr("moorage.cluster.engine.paths.RUN", tmp_path)
    monkeypatch.setattr(module, "CriClient", block)
    monkeypatch.setattr(module, "connected", block)
    monkeypatch.setattr(module, "EventRecorder", Recorder)

    def options(*arguments: Any) -> str:
        passed["_options"] = arguments
        return "options"

    def this_machine(directory: Path, host: str) -> tuple[Path, str]:
        return directory, host

    monkeypatch.setattr(module, "read_host", lambda: "host")
    monkeypatch.setattr(module, "this_machine", this_machine)
    monkeypatch.setattr(module, "_options", options)
    monkeypatch.setattr(module, "run_node", run_node)
    monkeypatch.setattr(module, "raise_descriptor_limit", lambda: steps.append("descriptors"))

    def record(name: str) -> Any:
        async def call(*arguments: Any) -> None:
            steps.append(name)
            passed[name] = arguments

        return call

    for name in ("_await_engine", "hold_to_store", "_announce", "run_when_served"):
        monkeypatch.setattr(module, name, record(name))
    follower = SimpleNamespace(run="follow installations")
    monkeypatch.setattr(module, "InstallationFollower", lambda *_, **__: follower)
    followed: list[tuple[Any, ...]] = []

    async def follow(*arguments: Any) -> None:
        steps.append("follow_handlers")
        followed.append(arguments)

    monkeypatch.setattr(module, "follow_handlers", follow)
    found: list[Any] = []

    class Discovery:
        run = step("discovery")

        def __init__(self, *_: Any, handlers_changed: asyncio.Event, **more: Any) -> None:
            assert (more["layout"], more["settings"]) == (layout, settings)
            self.changed = handlers_changed
            found.append(self)

        async def note(self, handlers: Any) -> None:
            raise AssertionError(handlers)

        async def read(self, status: Any) -> None:
            raise AssertionError(status)

    monkeypatch.setattr(module, "discovery_of", Discovery)
    layout, settings = Layout(tmp_path), msgspec.structs.replace(SETTINGS, cri=cri)
    await module.run(layout, settings)
    assert ran.is_set()
    client, name, store_of = passed["hold_to_store"]
    assert (client.endpoint, name, store_of) == ("moorage-node", "n1", layout)
    announcer, announced, credentials, _ = passed["_announce"]
    assert (announcer, announced) == (client, settings)
    assert credentials.admin == Credentials(layout).admin
    settings_of, credentials_of, identity, _ = blocks["moorage-node"]
    assert (settings_of, credentials_of, identity) == (settings, credentials, credentials.node)
    assert passed["_options"] == (layout, settings, credentials, "host")
    assert given["machine"] == (layout.node, "host")
    own_socket = () if cri else (tmp_path / "0a1b2c3d" / "engine.sock",)
    assert passed.get("_await_engine", ()) == own_socket
    own = f"unix://{tmp_path}/0a1b2c3d/engine.sock"
    wanted = (
        "run",
        "moorage-node",
        cri or own,
        "options",
        ["engine_changed", "machine", "read_handlers"],
    )
    before = [cri] if cri else [own, "_await_engine"]
    between = [(COMPONENT, "n1")]
    assert steps[: len(before) + 3 + len(between)] == [
        "descriptors", *before, "moorage-node", "hold_to_store", *between
    ]  # fmt: skip
    rest = steps[len(before) + 3 + len(between) :]
    assert wanted in rest
    assert sorted(step for step in rest if step != wanted) == sorted(
        ["_announce", "discovery", "records", "run_when_served",
         *([] if cri else ["follow_handlers"])]
    )  # fmt: skip
    assert passed["run_when_served"][1] is RUNTIME_INSTALLATIONS
    assert passed["run_when_served"][3] == "follow installations"
    # As the kubelet's events: `kubectl describe node` selects them by the node's name as uid.
    about = ObjectReference(kind="Node", api_version="v1", name="n1", uid="n1")
    assert [(engine, note) for engine, _, note in followed] == (
        [] if cri else [(given["cri"], found[0].note)]
    )
    assert [events._node for _, events, _ in followed] == ([] if cri else [about])
    assert given["read_handlers"] == found[0].read
    assert found[0].changed is given["engine_changed"]
