"""Web page of the API server: rights of its users, and the paths beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from moorage.apiserver.authorization.authorizer import Authorizer, Decision
from moorage.apiserver.registry.kinds.pod import POD
from moorage.apiserver.registry.request import User
from moorage.apiserver.registry.resource_map import ResourceMap
from moorage.apiserver.registry.stored import StoredFactory
from moorage.apiserver.server.web_page import OwnReader, WebPage
from moorage.wire.client.resources import PODS as POD_RESOURCE
from tests.apiserver.running_server import Running, serving
from tests.apiserver.server.test_metrics_page import metrics, total

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        yield running


async def test_the_page_shows_classes_and_pods(server: Running) -> None:
    body = {"metadata": {"name": "sandboxed"}, "handler": "gvisor"}
    assert (await server.ask("POST", CLASSES, body)).status == 201
    pod = {
        "metadata": {"name": "web"},
        "spec": {
            "runtimeClassName": "sandboxed",
            "automountServiceAccountToken": False,
            "containers": [{"name": "c", "image": "i"}],
        },
    }
    account = {"metadata": {"name": "default"}}
    await server.ask("POST", "/api/v1/namespaces/default/serviceaccounts", account)
    assert (await server.ask("POST", PODS, pod)).status == 201
    first = await server.ask("GET", "/ui/")
    assert first.status == 200
    assert first.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in first.headers["Content-Security-Policy"]
    assert '<a href="classes/sandboxed">' in first.text
    listed = await server.ask("GET", "/ui/classes/sandboxed")
    assert '<a href="../namespaces/default/pods/web">' in listed.text
    shown = await server.ask("GET", "/ui/namespaces/default/pods/web")
    assert "The pod has not been scheduled yet" in shown.text
    assert (await server.ask("GET", "/ui/style.css")).headers["Content-Type"].startswith("text/css")


async def test_users_see_what_they_may_read(server: Running) -> None:
    page = await server.ask("GET", "/ui/", token="alice-token")
    assert page.status == 200
    assert "You may not read nodes, pods" in page.text
    path = "/ui/namespaces/default/pods/web"
    assert (await server.ask("GET", path, token="alice-token")).status == 403
    assert (await server.ask("GET", path)).status == 404
    assert (await server.ask("GET", "/ui/", token="")).status == 401


async def test_the_root_without_a_slash_leads_to_the_page(server: Running) -> None:
    answer = await server.ask("GET", "/ui")
    assert (answer.status, answer.headers["Location"]) == (301, "ui/")


async def test_the_page_is_only_read(server: Running) -> None:
    assert (await server.ask("POST", "/ui/", {})).status == 405
    assert (await server.ask("HEAD", "/ui/")).status == 200
    assert (await server.ask("GET", "/uix")).status == 404
    assert (await server.ask("GET", "/ui/none")).status == 404


async def test_pages_hold_a_seat_of_flow_control(server: Running) -> None:
    family = "apiserver_flowcontrol_dispatched_requests_total"
    before = total(await metrics(server), family, flow_schema="global-default")
    assert (await server.ask("GET", "/ui/", token="alice-token")).status == 200
    after = total(await metrics(server), family, flow_schema="global-default")
    assert after == before + 1


class _FakeCache:
    """Holds one pod many times."""

    def __init__(self, count: int) -> None:
        value = b'{"metadata":{"name":"p"},"spec":{"nodeName":"n1"}}'
        self._items = [StoredFactory([POD])(POD.key("default", "p"), 1, value)] * count

    def scan(self, prefix: str) -> list[Any]:
        del prefix
        return self._items


class _FakeAuthorizer:
    """Allows everything."""

    def decide(self, user: User, action: Any) -> Decision:
        del user, action
        return Decision(is_allowed=True)


async def test_others_have_their_turn_while_a_long_list_is_read() -> None:
    page = WebPage(
        ResourceMap([POD]),
        cast(Any, _FakeCache(20_000)),
        cast(Authorizer, _FakeAuthorizer()),
    )
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    waiting = asyncio.create_task(other())
    listed: list[Any] = []
    await OwnReader(page, User("alice")).visit(POD_RESOURCE, listed.append)
    waiting.cancel()
    assert len(listed) == 20_000
    # 20,000 pods take at least 20 ms on any machine, and every 5 ms others have a turn.
    assert turns >= 3
    reader, found = OwnReader(page, User("a")), list[Any]()
    await reader.visit(POD_RESOURCE, found.append, field_selector="spec.nodeName=n2")
    assert found == []
