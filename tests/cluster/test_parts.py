"""Each part of a cluster: what it is given, and how it comes to the API server."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.api.errors import StatusError
from moorage.api.host_ports import Listener
from moorage.apiserver.endpoints.node_agents import NodeTls
from moorage.cluster.access.credentials import Credentials
from moorage.cluster.engine.paths import engine_paths
from moorage.cluster.engine.plan import EnginePlan, plan_engine
from moorage.cluster.layout import ISSUER, Layout
from moorage.cluster.network import pod_network
from moorage.cluster.parts.__main__ import main, status_of
from moorage.cluster.parts.apiserver import options_of, without_own_engine
from moorage.cluster.parts.connection import connected
from moorage.cluster.parts.controllers import wait_own_kinds
from moorage.cluster.parts.engine import bring_images, with_stream_port
from moorage.cluster.settings import SettingsError
from moorage.cluster.supervision.supervisor import PORT_TAKEN_STATUS
from moorage.wire.client.rest import UnreachableError
from tests.cluster.hosts import a_host, tools_without
from tests.cluster.test_settings import SETTINGS


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "d")
    layout.root.mkdir()
    credentials = Credentials(layout)
    pairs = (credentials.authority, credentials.controllers, credentials.scheduler)
    for pair in pairs:
        for file in (pair.certificate, pair.key):
            file.parent.mkdir(exist_ok=True)
            file.write_text(file.name)
    return layout


# The program.


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("x"), 1),
        (OSError(errno.EADDRINUSE, "taken"), PORT_TAKEN_STATUS),
        (OSError(errno.EACCES, "denied"), 1),
        (ExceptionGroup("g", [ValueError(), OSError(errno.EADDRINUSE, "x")]), PORT_TAKEN_STATUS),
        (ExceptionGroup("g", [ValueError(), OSError(errno.EACCES, "x")]), 1),
    ],
)
def test_the_status_says_whether_the_port_of_a_part_was_taken(
    error: Exception, status: int
) -> None:
    assert status_of(error) == status


@pytest.mark.parametrize("argv", [[], ["engine"], ["other", "/d"], ["engine", "/d", "more"]])
def test_wrong_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert "apiserver|controllers|dns|engine|node DATA_DIR" in captured.err
    assert captured.out == ""


def test_without_settings_there_is_no_part(layout: Layout) -> None:
    before = os.umask(0o022)
    with pytest.raises(SettingsError, match="no such file; `moor up` makes it"):
        main(["engine", str(layout.root)])
    assert os.umask(before) == 0o022


# The API server.


@pytest.mark.parametrize(
    ("changes", "services"),
    [({"cri": "unix:///x.sock"}, IPv4Network("10.96.0.0/16")), ({"has_node": False}, None)],
)
def test_what_the_server_protects_without_an_engine_of_its_own(
    layout: Layout, changes: dict[str, Any], services: IPv4Network | None
) -> None:
    settings = msgspec.structs.replace(SETTINGS, **changes)
    network = pod_network(settings, engine_paths(layout, settings).leases)
    engine = Listener("engine", "127.0.0.1", 1007)
    assert without_own_engine(network, settings, [engine]) == replace(
        network, listeners=(*settings.listeners, engine), services=services
    )


def test_the_server_has_the_clusters_files_and_addresses(layout: Layout) -> None:
    settings = msgspec.structs.replace(SETTINGS, gates={"RuntimeClass": False})
    options, api = options_of(layout, settings)
    credentials = Credentials(layout)
    authority = credentials.authority.certificate
    assert (options.database, options.mark) == (layout.database, layout.store_mark)
    assert (options.certificate, options.key, options.client_ca) == (
        credentials.api_server.certificate, credentials.api_server.key, authority
    )  # fmt: skip
    assert (options.addresses, options.port) == (("127.0.0.1", "10.244.0.1"), 6443)
    assert (api.signing_key, api.public_url) == (
        credentials.signing_key, "https://10.244.0.1:6443"
    )  # fmt: skip
    assert str(api.service_network) == "10.96.0.0/16"
    assert api.issuer == ISSUER
    node = credentials.node_client
    assert api.node_tls == NodeTls(node.certificate, node.key, authority)
    assert (api.listeners, api.gates) == (settings.listeners, {"RuntimeClass": False})


# How others come to it.


class FakeApi:
    """A server that answers once it is ready."""

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.asked: list[tuple[str, str]] = []
        self.config: Any = None
        self.user_agent = ""

    def __call__(self, config: Any, user_agent: str) -> FakeApi:
        self.config, self.user_agent = config, user_agent
        return self

    async def __aenter__(self) -> FakeApi:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.asked.append(("closed", ""))

    async def request(self, method: str, path: str) -> None:
        self.asked.append((method, path))
        if self.refusals:
            raise self.refusals.pop(0)


def as_client(api: FakeApi) -> Any:
    return api


async def test_the_server_is_asked_until_it_is_ready(layout: Layout) -> None:
    api = FakeApi(UnreachableError("not yet"), StatusError("not yet"))
    credentials = Credentials(layout)
    pair = credentials.controllers
    async with connected(SETTINGS, credentials, pair, "agent", client_of=as_client(api)) as client:
        assert client is api  # type: ignore[comparison-overlap]
        assert api.asked == [("GET", "/readyz")] * 3
    assert api.asked[-1] == ("closed", "")
    assert (api.config.server, api.user_agent) == ("https://127.0.0.1:6443", "agent")
    names = [credentials.authority.certificate.name, pair.certificate.name, pair.key.name]
    config = api.config
    assert [config.ca, config.certificate, config.key] == [name.encode() for name in names]


async def test_a_server_that_is_never_ready_is_an_error(layout: Layout) -> None:
    api = FakeApi(*[UnreachableError("no")] * 1000)
    credentials = Credentials(layout)
    with pytest.raises(UnreachableError, match=r"https://127\.0\.0\.1:6443 is not ready"):
        async with connected(
            SETTINGS,
            credentials,
            credentials.controllers,
            "a",
            first_answer_s=0.01,
            client_of=as_client(api),
        ):
            pass
    assert api.asked[-1] == ("closed", "")


async def test_a_part_is_ready_although_its_kinds_cannot_be_installed() -> None:
    client: Any = FakeApi(*[UnreachableError("no")] * 1000)
    async with asyncio.timeout(10):
        await wait_own_kinds(client, 0.01)


# The engine.


def a_plan(root: Path, *missing: str) -> EnginePlan:
    return plan_engine(Layout(root), SETTINGS, a_host(tools=tools_without(*missing)))


def test_the_port_of_streams_is_chosen_and_kept_from_pods(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    assert plan.paths == engine_paths(Layout(tmp_path), SETTINGS)
    chosen = with_stream_port(plan)
    port = chosen.options.stream_port
    assert port > 1023
    assert plan.options.stream_port == 0
    assert chosen.network.listeners == (
        *plan.network.listeners, Listener("engine", "127.0.0.1", port)
    )  # fmt: skip
    assert chosen.options.stream_address == "127.0.0.1"


async def test_without_programs_there_are_no_images(tmp_path: Path) -> None:
    nothing: Any = None
    await bring_images(a_plan(tmp_path, "busybox", "catatonit"), nothing)
