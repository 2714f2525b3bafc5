"""The metrics port of a part: who may read it, as a real API server says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moorage.api.clock import SystemClock
from moorage.cluster.access.credentials import Pair
from moorage.cluster.access.identities import Subject
from moorage.cluster.parts.secure_port import serve_metrics
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.rest import Client
from moorage.wire.metrics import Counter
from tests.apiserver.running_server import Running, serving
from tests.ports import free_port

RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Port:
    """A metrics port, and requests to it."""

    def __init__(self, server: Running, port: int, client: Client) -> None:
        self.server = server
        self.client = client
        self._url = f"https://127.0.0.1:{port}"

    async def get(
        self, path: str = "/metrics", *, token: str = "", pair: Pair | None = None,
        method: str = "GET",
    ) -> tuple[int, str]:  # fmt: skip
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connector = aiohttp.TCPConnector(ssl=self.server.tls(pair))
        async with (
            aiohttp.ClientSession(connector=connector) as http,
            http.request(method, self._url + path, headers=headers) as answer,
        ):
            return answer.status, await answer.text()

    def issue(self, name: str, group: str) -> Pair:
        return self.server.authority.issue(name, Subject(name, group))


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(tmp_path))
        manager = server.authority.issue("kcm", Subject("system:kube-controller-manager"))
        config = ClientConfig(
            server=server.url,
            ca=server.authority.pair.certificate.read_bytes(),
            certificate=manager.certificate.read_bytes(),
            key=manager.key.read_bytes(),
        )
        client = await stack.enter_async_context(Client(config, user_agent="test"))
        counter = Counter("things_total", "Things.")
        counter.count()
        number = free_port()
        own = server.authority.issue("server", Subject("server", hosts=("127.0.0.1",)))
        serving_metrics = asyncio.create_task(
            serve_metrics(
                number, own, server.authority.pair, client, lambda: [counter], SystemClock()
            )
        )
        port = Port(server, number, client)
        await _until_open(number, serving_metrics)
        yield port
        serving_metrics.cancel()
        await asyncio.wait((serving_metrics,))


async def _until_open(port: int, server: asyncio.Task[Any]) -> None:
    async with asyncio.timeout(10):
        while not server.done():
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return
    await server


async def test_an_administrator_reads_it(port: Port) -> None:
    expected = 200, "# HELP things_total Things.\n# TYPE things_total counter\nthings_total 1\n"
    assert await port.get(token="admin-token") == expected
    assert await port.get(pair=port.issue("boss", "system:masters")) == expected
    assert (await port.get(method="HEAD", token="admin-token"))[0] == 200


async def test_others_do_not(port: Port) -> None:
    assert await port.get() == (401, "Unauthorized\n")
    assert await port.get(token="guessed") == (401, "Unauthorized\n")
    assert await port.get(token="alice-token") == (
        403, 'forbidden: User "alice" cannot get path "/metrics"\n',
    )  # fmt: skip
    status, text = await port.get(pair=port.issue("someone", "dev"))
    assert (status, "someone" in text) == (403, True)
    # A token that is not valid is not excused by a certificate.
    boss = port.issue("boss", "system:masters")
    assert (await port.get(token="guessed", pair=boss))[0] == 401


async def test_who_may_monitor_reads_it(port: Port) -> None:
    binding = {
        "metadata": {"name": "watchers"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:monitoring",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    }
    created = await port.server.ask("POST", f"{RBAC}/clusterrolebindings", binding)
    assert created.status == 201
    assert (await port.get(token="alice-token"))[0] == 200
    assert (await port.get("/other", token="alice-token"))[0] == 403
    assert (await port.get("/other", token="admin-token"))[0] == 404


async def test_health_is_open_and_nothing_is_written(port: Port) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert await port.get(path) == (200, "ok")
    assert (await port.get(method="POST", token="admin-token"))[0] == 405


async def test_answers_are_remembered(port: Port) -> None:
    def reviews() -> float:
        lines = [line for family in port.client.metrics.families() for line in family.lines()]
        counted = [line for line in lines if "requests_total" in line]
        return sum(float(line.rpartition(" ")[2]) for line in counted)

    await port.get(token="alice-token")
    assert reviews() == 2
    await port.get(token="alice-token")
    assert reviews() == 2


async def test_without_the_api_server_no_caller_is_let_in(port: Port) -> None:
    authority, number = port.server.authority, free_port()
    own = authority.issue("server", Subject("server", hosts=("127.0.0.1",)))
    config = ClientConfig(server=f"https://127.0.0.1:{free_port()}", token="t")
    async with Client(config, user_agent="test") as client:
        running = asyncio.create_task(
            serve_metrics(number, own, authority.pair, client, list, SystemClock())
        )
        await _until_open(number, running)
        alone = Port(port.server, number, client)
        assert await alone.get(token="admin-token") == (503, "the API server cannot be asked\n")
        assert await alone.get("/healthz") == (200, "ok")
        running.cancel()
        await asyncio.wait((running,))
