"""ComponentStatuses of a real API server, with components that answer in different ways."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from moorage.cluster.access.identities import Subject
from tests.apiserver.running_server import Running, serving
from tests.ports import free_port

PATH = "/api/v1/componentstatuses"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@dataclass
class Components:
    """An API server; the scheduler answers `status`, the controllers' port is closed."""

    server: Running
    closed: int
    status: int = 200

    async def handle(self, request: web.BaseRequest) -> web.Response:
        assert request.path == "/healthz"
        return web.Response(status=self.status, text="ok" if self.status == 200 else "no leader")

    async def read(self, path: str = PATH, **headers: str) -> Any:
        answer = await self.server.ask("GET", path, **headers)
        assert answer.status == 200, answer.text
        assert answer.headers["Warning"] == '299 - "v1 ComponentStatus is deprecated in v1.19+"'
        return answer.json


@pytest.fixture
async def components(tmp_path: Path) -> AsyncIterator[Components]:
    closed, port = free_port(), free_port()
    ports = {"scheduler": port, "controller-manager": closed}
    async with serving(tmp_path, components=ports) as server:
        started = Components(server, closed)
        pair = server.authority.issue("scheduler", Subject("s", hosts=("other",)))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        runner = web.ServerRunner(web.Server(started.handle))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        try:
            yield started
        finally:
            await runner.cleanup()


async def test_each_component_is_asked_for_its_health(components: Components) -> None:
    listed = await components.read()
    assert (listed["kind"], listed["apiVersion"]) == ("ComponentStatusList", "v1")
    refused = (
        f'Get "https://127.0.0.1:{components.closed}/healthz": '
        f"dial tcp 127.0.0.1:{components.closed}: connect: connection refused"
    )
    assert listed["items"] == [
        {
            "metadata": {"name": "controller-manager"},
            "conditions": [{"type": "Healthy", "status": "False", "message": refused}],
        },
        {
            "metadata": {"name": "scheduler"},
            "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
        },
    ]
    table = await components.read(Accept=TABLE)
    assert [row["cells"][:2] for row in table["rows"]] == [
        ["controller-manager", "Unhealthy"], ["scheduler", "Healthy"],
    ]  # fmt: skip
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name", "Status", "Message", "Error",
    ]  # fmt: skip
    (first, _) = (await components.read(Accept=METADATA))["items"]
    assert first["metadata"] == {"name": "controller-manager"}


async def test_one_component_is_read_in_its_present_state(components: Components) -> None:
    components.status = 500
    scheduler = await components.read(f"{PATH}/scheduler")
    assert scheduler["kind"] == "ComponentStatus"
    (condition,) = scheduler["conditions"]
    assert (condition["status"], condition["message"]) == ("False", "no leader")
    gone = await components.server.ask("GET", f"{PATH}/etcd-0")
    assert (gone.status, gone.json["message"]) == (404, 'componentstatus "etcd-0" not found')


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("fieldSelector=metadata.name=scheduler", ["scheduler"]),
        ("fieldSelector=metadata.name!=scheduler", ["controller-manager"]),
        ("labelSelector=a=b", []),
    ],
)
async def test_selectors_choose_by_name_alone(
    components: Components, query: str, names: list[str]
) -> None:
    listed = await components.read(f"{PATH}?{query}")
    assert [item["metadata"]["name"] for item in listed["items"]] == names


async def test_one_is_sent_in_protobuf_and_a_list_in_json(components: Components) -> None:
    answer = await components.server.ask("GET", f"{PATH}/scheduler", Accept=PROTOBUF)
    assert answer.body.startswith(b"k8s\0")
    assert b"Healthy" in answer.body
    listed = await components.read(Accept=f"{PROTOBUF},application/json")
    assert len(listed["items"]) == 2


async def test_nothing_else_may_be_done_with_them(components: Components) -> None:
    for method, path in (
        ("POST", PATH),
        ("DELETE", f"{PATH}/scheduler"),
        ("GET", f"{PATH}?watch=1"),
    ):
        assert (await components.server.ask(method, path, {})).status == 405
