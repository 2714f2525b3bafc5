"""The part that runs the node agent: what it is given, and what it prepares."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
import pytest

from moorage.api.meta import ObjectReference
from moorage.cluster.access.credentials import Credentials
from moorage.cluster.engine.handlers import NodeEvents, follow_handlers
from moorage.cluster.engine.paths import cgroup_root
from moorage.cluster.layout import CLUSTER_DOMAIN, NODE_CLIENT_NAME, Layout
from moorage.cluster.parts.node import (
    await_engine,
    options_of,
    prepare_api,
    with_class,
    working,
)
from moorage.cluster.reservations import system_reserved
from moorage.node.images.verification import Verification
from moorage.runtimes.custom_resources.installation import CUSTOM_RESOURCE_DEFINITIONS
from moorage.runtimes.probing.cache import ProbedHandler
from moorage.runtimes.probing.evidence import HandlerState, KnownHandler, Working
from moorage.wire.client.resources import RUNTIME_CLASSES, STORAGE_CLASSES
from moorage.wire.cri import CriError, engine_pb
from tests.clocks import settle
from tests.cluster.test_settings import SETTINGS
from tests.controllers.cluster import running_cluster
from tests.linux.hosts import linux_host


def test_the_options_of_the_agent(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    credentials = Credentials(layout)
    host = linux_host(memory_bytes=8 << 30, max_pids=1000, oom_score_floor=-999)
    settings = msgspec.structs.replace(
        SETTINGS, pod_pids_limit=7, seccomp_default=True, gates={"RuntimeClass": False},
        image_verification="AlwaysVerify", image_allowlist=("a/*",),
    )  # fmt: skip
    options = options_of(layout, settings, credentials, host)
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
        "service_environment": {}, "cluster_dns": ("10.96.0.10",),
        "listeners": settings.listeners, "gates": {"RuntimeClass": False},
    }  # fmt: skip
    assert {name: passed[name] for name in wanted} == wanted


def test_with_an_external_engine_pods_reach_the_api_by_its_own_address(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    settings = msgspec.structs.replace(SETTINGS, cri="unix:///run/x.sock")
    options = options_of(layout, settings, Credentials(layout), linux_host())
    assert options.cluster_dns == ()
    assert options.service_environment == {
        "KUBERNETES_SERVICE_HOST": "192.0.2.7", "KUBERNETES_SERVICE_PORT": "6443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "6443",
    }  # fmt: skip


async def test_an_engine_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "s"
    await await_engine(path, 0.02)
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        # Left by an engine that was killed: it is there, and takes no calls.
        waiting = asyncio.ensure_future(await_engine(path, 100))
        await settle()
        assert not waiting.done()
        engine.listen()
        async with asyncio.timeout(20):
            await waiting


class FakeCri:
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


async def test_handler_changes_are_reported_after_the_engine_was_away() -> None:
    a, b, c = (engine_pb.Handlers(complaints=names) for names in ("a", "ab", "bc"))
    away = CriError("m", grpc.StatusCode.UNAVAILABLE, "away")
    cri: Any = FakeCri([a, b, away], [c, c])
    recorded: list[Any] = []
    about = ObjectReference(kind="Node", name="n1")
    recorder: Any = SimpleNamespace(record=lambda *arguments: recorded.append(arguments))
    noted: list[Any] = []

    async def note(handlers: Any) -> None:
        noted.append(handlers)

    events = NodeEvents(recorder, about)
    following = asyncio.ensure_future(follow_handlers(cri, events, note, retry_s=0))
    await settle(100)
    following.cancel()
    assert recorded == [(about, "Warning", "RuntimeHandlerFileBroken", name) for name in "abc"]
    assert noted == [a, b, c, c]


async def test_an_engine_that_does_not_announce_handlers_is_not_followed() -> None:
    refusal = CriError("WatchHandlers", grpc.StatusCode.UNIMPLEMENTED, "unknown service")
    other: Any = FakeCri([refusal])
    none: Any = None
    async with asyncio.timeout(5):
        await follow_handlers(other, none, none)


def test_handlers_that_work_have_a_class_unless_they_are_another_one() -> None:
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
    assert working(states) == {"runc": "shared-kernel", "gvisor": "", "runsc": ""}
    assert with_class(states) == {"runc": "shared-kernel", "gvisor": ""}


ALONE = {"runs_runtimes": False, "installs_definitions": False}


@pytest.mark.parametrize(
    ("changes", "classes", "definitions"),
    [
        ({}, {"runc"}, False),
        ({"default_classes": False}, set(), False),
        ({"gates": {"RuntimeClass": False}}, set(), False),
        ({"without": ("controllers",)}, {"runc"}, True),
    ],
)
async def test_classes_and_definitions_are_made_by_the_administrator(
    tmp_path: Path, changes: dict[str, Any], classes: set[str], definitions: bool
) -> None:
    async with running_cluster(tmp_path, **ALONE) as cluster:
        client = cluster.client
        before = len((await client.list(CUSTOM_RESOURCE_DEFINITIONS)).items)
        settings = msgspec.structs.replace(SETTINGS, **changes)
        await prepare_api(client, settings, {"runc": ""})
        made = {item.metadata.name for item in (await client.list(RUNTIME_CLASSES)).items}
        assert made == classes
        assert len((await client.list(STORAGE_CLASSES)).items) == 1
        after = len((await client.list(CUSTOM_RESOURCE_DEFINITIONS)).items)
    assert (after > before) == definitions
