"""What each call puts on the wire: method, path, query, headers and body."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from moorage.api.errors import StatusError
from moorage.api.meta import ObjectMeta
from moorage.api.nodes import Node
from moorage.cluster.access.identities import Authority, Subject
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.resources import CONFIG_MAPS, NODES, PODS, PartialObject, Resource
from moorage.wire.client.rest import Client, PatchType, UnreachableError
from tests.wire.client.fake_api import answer, line, refusal
from tests.wire.streaming.servers import serving

_PARTIAL: Resource[PartialObject] = Resource("", "v1", "pods", "Pod", PartialObject)
_AS_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_AS_PARTIAL_LIST = _AS_PARTIAL.replace("Metadata;", "MetadataList;")


@dataclass
class Sent:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: Any


class Recorder:
    """Answers what it is given, the last answer again and again, and keeps what was sent."""

    def __init__(self, *answers: Callable[[], web.Response]) -> None:
        self.answers = list(answers) or [answer({"metadata": {"name": "x"}, "items": []})]
        self.sent: list[Sent] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        raw = await request.read()
        body = msgspec.json.decode(raw) if raw else None
        query = dict(request.query)
        self.sent.append(Sent(request.method, request.path, query, body, request.headers))
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])()


@asynccontextmanager
async def recording(
    *answers: Callable[[], web.Response], **config: Any
) -> AsyncIterator[tuple[Recorder, Client]]:
    recorder = Recorder(*answers)
    # The server's URL ends with a slash, as some kubeconfigs' do.
    async with (
        serving(recorder.handle) as url,
        Client(ClientConfig(server=url, **config), user_agent="test/1") as client,
    ):
        yield recorder, client


Call = Callable[[Client], Awaitable[Any]]
_MAP = {"data": {"k": "v"}}
_SENT_MAP = {"kind": "ConfigMap", "apiVersion": "v1", **_MAP}
_NODE = Node(metadata=ObjectMeta(name="n"))
_SENT_NODE = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}
_MAPS = "/api/v1/namespaces/ns/configmaps"
_DELETION = {"kind": "DeleteOptions", "apiVersion": "v1"}

CALLS: dict[str, tuple[Call, str, str, dict[str, str], Any]] = {
    "get": (lambda c: c.get(CONFIG_MAPS, "a", "ns"), "GET", f"{_MAPS}/a", {}, None),
    "list": (lambda c: c.list(CONFIG_MAPS, "ns"), "GET", _MAPS, {"limit": "500"}, None),
    "list selected": (
        lambda c: c.list(PODS, label_selector="a=b", field_selector="c=d"),
        "GET", "/api/v1/pods",
        {"limit": "500", "labelSelector": "a=b", "fieldSelector": "c=d"}, None,
    ),
    "create": (lambda c: c.create(CONFIG_MAPS, _MAP, "ns"), "POST", _MAPS, {}, _SENT_MAP),
    "create typed": (lambda c: c.create(NODES, _NODE), "POST", "/api/v1/nodes", {}, _SENT_NODE),
    "create subresource": (
        lambda c: c.create(PODS, {}, "ns", subresource="binding", name="p"),
        "POST", "/api/v1/namespaces/ns/pods/p/binding", {}, {"kind": "Pod", "apiVersion": "v1"},
    ),
    "update": (
        lambda c: c.update(CONFIG_MAPS, _MAP, "a", "ns"), "PUT", f"{_MAPS}/a", {}, _SENT_MAP,
    ),
    "update subresource": (
        lambda c: c.update(NODES, _NODE, "n", subresource="status"),
        "PUT", "/api/v1/nodes/n/status", {}, _SENT_NODE,
    ),
    "patch": (
        lambda c: c.patch(CONFIG_MAPS, "a", {"data": None}, "ns"),
        "PATCH", f"{_MAPS}/a", {}, {"data": None},
    ),
    "patch subresource": (
        lambda c: c.patch(
            NODES, "n", [], subresource="status", field_manager="me", force=True
        ),
        "PATCH", "/api/v1/nodes/n/status", {"fieldManager": "me", "force": "true"}, [],
    ),
    "delete": (lambda c: c.delete(CONFIG_MAPS, "a", "ns"), "DELETE", f"{_MAPS}/a", {}, _DELETION),
    "delete with options": (
        lambda c: c.delete(
            NODES, "n", uid="u", resource_version="7", grace_period_seconds=0,
            propagation_policy="Orphan",
        ),
        "DELETE", "/api/v1/nodes/n", {},
        {**_DELETION, "gracePeriodSeconds": 0, "propagationPolicy": "Orphan",
         "preconditions": {"uid": "u", "resourceVersion": "7"}},
    ),
    "delete of one uid": (
        lambda c: c.delete(NODES, "n", uid="u"), "DELETE", "/api/v1/nodes/n", {},
        {**_DELETION, "preconditions": {"uid": "u"}},
    ),
    "delete collection": (
        lambda c: c.delete_collection(CONFIG_MAPS, "ns", label_selector="a=b"),
        "DELETE", _MAPS, {"labelSelector": "a=b"}, None,
    ),
    "delete whole collection": (
        lambda c: c.delete_collection(NODES), "DELETE", "/api/v1/nodes", {}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
async def test_calls(name: str) -> None:
    call, method, path, query, body = CALLS[name]
    async with recording() as (recorder, client):
        await call(client)
    (sent,) = recorder.sent
    assert (sent.method, sent.path, sent.query, sent.body) == (method, path, query, body)
    assert sent.headers["Accept"] == "application/json"
    assert sent.headers["User-Agent"] == "test/1"
    assert "Authorization" not in sent.headers
    if method == "PATCH":
        assert sent.headers["Content-Type"] == "application/merge-patch+json"
    elif body is not None:
        assert sent.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("kind", "media"),
    [
        (PatchType.JSON, "application/json-patch+json"),
        (PatchType.MERGE, "application/merge-patch+json"),
        (PatchType.STRATEGIC, "application/strategic-merge-patch+json"),
        (PatchType.APPLY, "application/apply-patch+yaml"),
    ],
)
async def test_patches_have_media_types(kind: PatchType, media: str) -> None:
    async with recording() as (recorder, client):
        await client.patch(NODES, "n", {}, kind=kind)
    assert recorder.sent[0].headers["Content-Type"] == media


async def test_each_write_is_checked_and_no_read_is() -> None:
    def refuse() -> None:
        raise UnreachableError("not sent")

    async with recording() as (recorder, client):
        client.check_writes(refuse)
        await client.get(NODES, "n")
        for write in (
            client.create(CONFIG_MAPS, _MAP, "ns"),
            client.update(CONFIG_MAPS, _MAP, "m", "ns"),
            client.patch(CONFIG_MAPS, "m", _MAP, "ns"),
            client.delete(CONFIG_MAPS, "m", "ns"),
        ):
            with pytest.raises(UnreachableError, match="not sent"):
                await write
        assert [sent.method for sent in recorder.sent] == ["GET"]


async def test_answers_are_the_resources_struct() -> None:
    page = {"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "n"}}]}
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    async with recording(answer(page), answer({"items": None}), answer(node)) as (_, client):
        listed = await client.list(NODES)
        assert (listed.items, listed.metadata.resource_version) == ([_NODE], "7")
        assert (await client.list(NODES)).items == []
        for obj in (
            await client.get(NODES, "n"), await client.create(NODES, {}),
            await client.update(NODES, {}, "n"), await client.patch(NODES, "n", {}),
        ):  # fmt: skip
            assert isinstance(obj, Node)
            assert (obj.metadata.name, obj.spec.unschedulable) == ("n", True)


async def test_pages_are_asked_for_one_after_the_other() -> None:
    pages = [
        answer({"metadata": {"continue": token, "resourceVersion": "5"}, "items": [{}]})
        for token in ("t1", "t2", "")
    ]
    async with recording(*pages) as (recorder, client):
        assert len((await client.list(NODES, label_selector="a=b")).items) == 3
    queries = [sent.query for sent in recorder.sent]
    asked = {"limit": "500", "labelSelector": "a=b"}
    assert queries == [asked, {**asked, "continue": "t1"}, {**asked, "continue": "t2"}]


async def test_metadata_alone_is_asked_for_in_lists_and_watches() -> None:
    event = line("ADDED", {"metadata": {"name": "p", "resourceVersion": "3"}, "spec": {}})
    async with recording(
        answer({"items": [{"kind": "Pod", "metadata": {"name": "p"}}]}),
        lambda: web.Response(body=event),
    ) as (recorder, client):
        (listed,) = (await client.list(_PARTIAL)).items
        assert (listed.kind, listed.metadata.name) == ("Pod", "p")
        (watched,) = [
            watch_event async for watch_event in client.watch(_PARTIAL, resource_version="2")
        ]
        assert (watched.type, watched.resource_version) == ("ADDED", "3")
        assert watched.object is not None
        assert watched.object.metadata.name == "p"
    accepted = [sent.headers["Accept"] for sent in recorder.sent]
    assert accepted == [_AS_PARTIAL_LIST, _AS_PARTIAL]


async def test_a_watch_asks_for_bookmarks_and_an_end() -> None:
    async with recording(lambda: web.Response(body=b"")) as (recorder, client):
        asked = client.watch(
            CONFIG_MAPS, "ns", resource_version="7", label_selector="a=b", field_selector="c=d"
        )
        assert [event async for event in asked] == []
        assert [event async for event in client.watch(NODES, resource_version="0")] == []
    every = {"watch": "true", "allowWatchBookmarks": "true"}
    first, second = recorder.sent
    for sent in recorder.sent:
        assert 300 <= int(sent.query.pop("timeoutSeconds")) <= 600
    assert (first.method, first.path) == ("GET", _MAPS)
    assert first.query == {
        **every, "resourceVersion": "7", "labelSelector": "a=b", "fieldSelector": "c=d",
    }  # fmt: skip
    assert second.query == {**every, "resourceVersion": "0"}


async def test_events_of_a_watch_are_lines() -> None:
    node = {"metadata": {"name": "n", "resourceVersion": "4"}}
    bookmark = {"metadata": {"resourceVersion": "9"}, "kind": "Node"}
    lines = line("ADDED", node) + b"\n" + line("BOOKMARK", bookmark) + line("DELETED", node)
    error = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "old"})
    bodies = [lines, lines + error, lines[:-3]]
    async with recording(*(lambda body=body: web.Response(body=body) for body in bodies)) as (
        _, client,
    ):  # fmt: skip
        watch_events = [event async for event in client.watch(NODES, resource_version="1")]
        assert [(event.type, event.resource_version) for event in watch_events] == [
            ("ADDED", "4"), ("BOOKMARK", "9"), ("DELETED", "4"),
        ]  # fmt: skip
        assert watch_events[1].object is None
        assert watch_events[2].object is not None
        with pytest.raises(StatusError, match="old") as caught:
            _ = [event async for event in client.watch(NODES, resource_version="1")]
        assert caught.value.status_code == 410
        # A line that was cut off is no event.
        assert len([event async for event in client.watch(NODES, resource_version="1")]) == 2


async def test_a_watch_that_is_refused_is_the_exception_of_its_reason() -> None:
    async with recording(refusal(403, "Forbidden", "not yours")) as (_, client):
        with pytest.raises(StatusError, match="not yours"):
            await anext(client.watch(NODES, resource_version="1"))


@pytest.mark.parametrize(
    ("required", "served", "is_taken"),
    [("", "one", True), ("one", "one", True), ("one", "two", False), ("one", None, True)],
)
async def test_lists_of_another_store_are_refused(
    required: str, served: str | None, is_taken: bool
) -> None:
    headers = {} if served is None else {"Moorage_Store": served}
    async with recording(answer({"metadata": {}}, 200, **headers)) as (recorder, client):
        assert await client.store_of(NODES, "metadata.name=x") == (served or "")
        assert recorder.sent[0].query == {"limit": "1", "fieldSelector": "metadata.name=x"}
        assert recorder.sent[0].method == "GET"
        client.require_store(required)
        if is_taken:
            await client.list(NODES)
        else:
            with pytest.raises(UnreachableError, match="serves two, not one"):
                await client.list(NODES)


@pytest.mark.parametrize(
    ("busy", "tries"), [(10, 11), (11, 11)], ids=["in the end it answers", "it never answers"]
)
async def test_a_busy_server_is_asked_so_often(busy: int, tries: int) -> None:
    refusals = [refusal(503, "ServiceUnavailable", Retry_After="0")] * busy
    async with recording(*refusals, answer({"metadata": {}})) as (recorder, client):
        if busy < tries:
            await client.get(NODES, "n")
        else:
            with pytest.raises(StatusError, match="no"):
                await client.get(NODES, "n")
    assert len(recorder.sent) == tries


@pytest.mark.parametrize(("asked", "waited"), [("2", 2), ("60", 60), ("999999999", 60)])
async def test_a_pause_is_as_long_as_asked_and_a_minute_at_most(
    asked: str, waited: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    busy = refusal(429, "TooManyRequests", Retry_After=asked)
    async with recording(busy, answer({"metadata": {}})) as (_, client):
        await client.get(NODES, "n")
    assert waited in pauses


@pytest.mark.parametrize("code", [400, 404, 500, 504])
async def test_other_errors_are_not_asked_again_whatever_they_say(code: int) -> None:
    async with recording(refusal(code, "", Retry_After="0")) as (recorder, client):
        with pytest.raises(StatusError):
            await client.get(NODES, "n")
    assert len(recorder.sent) == 1


async def test_a_stream_is_checked_unless_the_caller_does() -> None:
    async with recording(refusal(404, "NotFound", "gone")) as (_, client):
        with pytest.raises(StatusError, match="gone"):
            async with client.stream("GET", "/x"):
                pass
        async with client.stream("GET", "/x", is_checked=False) as response:
            assert response.status == 404
    async with recording(lambda: web.Response(status=300, text="many")) as (_, client):
        with pytest.raises(StatusError, match="many"):
            async with client.stream("GET", "/x"):
                pass


@pytest.mark.parametrize("token", [None, "t"])
async def test_a_websocket_carries_the_identity_and_its_path_as_it_is(token: str | None) -> None:
    seen: list[web.Request] = []

    async def handle(request: web.Request) -> web.WebSocketResponse:
        seen.append(request)
        websocket = web.WebSocketResponse(protocols=("p",))
        await websocket.prepare(request)
        await websocket.send_bytes(b"x")
        await websocket.close()
        return websocket

    async with (
        serving(handle) as url,
        Client(ClientConfig(server=url, token=token), user_agent="test/1") as client,
        client.websocket("/a%2Fb?c=%20d", "p") as websocket,
    ):
        assert websocket.protocol == "p"
        assert await websocket.receive_bytes() == b"x"
    (request,) = seen
    assert request.raw_path == "/a%2Fb?c=%20d"
    assert request.headers.get("Authorization") == (f"Bearer {token}" if token else None)


async def test_a_closed_client_opens_nothing() -> None:
    client = Client(ClientConfig(server="http://host"), user_agent="test")
    with pytest.raises(RuntimeError, match="not open"):
        async with client.websocket("/", "p"):
            pass
    assert client.server == "http://host"
    await client.__aexit__()


async def test_refused_streams_give_their_connections_back() -> None:
    async with recording(refusal(404, "NotFound", "gone")) as (_, client):
        for _ in range(3):
            with pytest.raises(StatusError, match="gone"):
                async with client.stream("GET", "/x"):
                    pass
        assert client._session is not None
        connector = client._session.connector
        assert connector is not None
        assert not connector._acquired
        assert sum(map(len, connector._conns.values())) == 1


async def test_requests_go_over_tls_with_the_authority_of_the_config(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki", datetime.now(UTC))
    pair = authority.issue("server", Subject("server", hosts=("127.0.0.1",)))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    runner = web.ServerRunner(web.Server(Recorder().handle))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        server = f"https://127.0.0.1:{runner.addresses[0][1]}"
        ca = authority.pair.certificate.read_bytes()
        async with Client(ClientConfig(server, ca=ca), user_agent="test") as client:
            assert (await client.get(NODES, "x")).metadata.name == "x"
        async with Client(ClientConfig(server, insecure=True), user_agent="test") as client:
            assert (await client.get(NODES, "x")).metadata.name == "x"
        async with Client(ClientConfig(server), user_agent="test") as client:
            with pytest.raises(UnreachableError, match="certificate verify failed"):
                await client.get(NODES, "x")
    finally:
        await runner.cleanup()
