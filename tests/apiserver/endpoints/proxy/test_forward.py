"""Requests through `/proxy`: what the backend sees, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from moorage.apiserver.endpoints.node_agents import ServerAddress
from moorage.apiserver.endpoints.proxy import forward
from moorage.apiserver.endpoints.proxy.backends import Backend
from moorage.cluster.access.identities import Subject
from tests.apiserver.running_server import Running, serving

NODE = "/api/v1/nodes/n1"
PROXY = f"{NODE}/proxy"
MERGE = "application/merge-patch+json"


async def backend(request: web.Request) -> web.StreamResponse:
    """Say what was asked, or do what the path names."""
    if request.path == "/moved":
        return web.Response(status=302, headers={"Location": request.query["to"]})
    if request.path == "/headers":
        headers = {
            "X-Own": "1", "Access-Control-Allow-Origin": "*", "Content-Encoding": "gzip",
            "Keep-Alive": "timeout=5",
        }  # fmt: skip
        return web.Response(
            body=gzip.compress(b"text", mtime=0), headers=headers, status=418, reason="teapot"
        )
    if request.path == "/page":
        text = f'<a href="/x">{"y" * int(request.query["size"])}</a>'.encode()
        headers = {"Content-Type": "text/html; charset=utf-8"}
        if request.query.get("zip"):
            text, headers["Content-Encoding"] = gzip.compress(text), "gzip"
        return web.Response(body=text, headers=headers)
    if request.path == "/ws":
        socket = web.WebSocketResponse(protocols=("chat",))
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(message.data.upper())
        return socket
    body = await request.content.read()
    return web.json_response(
        {
            "method": request.method, "url": request.raw_path, "body": body.decode(),
            "headers": [[name, value] for name, value in request.headers.items()],
        }
    )  # fmt: skip


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    """An API server, and a node whose agent is the backend."""
    async with serving(tmp_path) as running:
        pair = running.authority.issue("agent", Subject("system:node:n1", hosts=("127.0.0.1",)))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        runner = web.ServerRunner(web.Server(backend))  # type: ignore[arg-type]
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = int(site.name.rpartition(":")[2])
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        assert (await running.ask("POST", "/api/v1/nodes", node)).status == 201
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await running.ask("PATCH", f"{NODE}/status", {"status": status}, Content_Type=MERGE)
        yield running
        await runner.cleanup()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_method_path_and_body_are_passed_on(server: Running, method: str) -> None:
    body = None if method == "GET" else b"some text"
    answer = await server.ask(
        method, f"{PROXY}/a%2Fb/%20c/?x=1&x=%26", body, Content_Type="text/plain"
    )
    assert answer.status == 200, answer.text
    seen = answer.json
    assert (seen["method"], seen["url"]) == (method, "/a%2Fb/%20c/?x=1&x=%26")
    assert seen["body"] == ("" if body is None else "some text")


async def test_no_authority_vouches_for_the_certificate_of_a_pod(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = (await server.ask("GET", NODE)).json
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    # A pod's address may not be on loopback, where the backend of these tests is.
    monkeypatch.setattr(
        forward, "pod_backend", lambda *_: Backend(ServerAddress("https", "127.0.0.1", port))
    )
    answer = await server.ask("GET", "/api/v1/namespaces/default/pods/https:p:443/proxy/x")
    assert (answer.status, answer.json.get("url")) == (200, "/x"), answer.text


@pytest.mark.parametrize("headers", [{}, {"Connection": "Upgrade", "Upgrade": "websocket"}])
async def test_a_port_with_an_address_in_it_reaches_nothing(
    server: Running, headers: dict[str, str]
) -> None:
    """To a parser of URLs `10.9.9.9:80@127.0.0.1` is the host 127.0.0.1."""
    spec = {"nodeName": "n1", "containers": [{"name": "a", "image": "i"}]}
    default = "/api/v1/namespaces/default"
    account = {"metadata": {"name": "default"}}
    assert (await server.ask("POST", f"{default}/serviceaccounts", account)).status == 201
    pods = f"{default}/pods"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ok"}, "spec": spec}
    assert (await server.ask("POST", pods, pod)).status == 201
    status = {"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}}
    written = await server.ask("PATCH", f"{pods}/ok/status", status, Content_Type=MERGE)
    assert written.status == 200, written.text
    agent = (await server.ask("GET", NODE)).json["status"]["daemonEndpoints"]
    port = agent["kubeletEndpoint"]["Port"]
    for name in (f"https:ok:80@127.0.0.1:{port}", "https:ok:80@127.0.0.1", "http:ok:80@127.0.0.77"):
        refused = await server.ask("GET", f"{pods}/{name}/proxy/x", **headers)
        assert refused.status == 400, refused.text
        assert refused.json["message"] == f'invalid pod request "{name}"'
    refused = await server.ask("GET", "/api/v1/nodes/https:n1:80@127.0.0.1/proxy/x", **headers)
    assert refused.status == 400, refused.text


async def test_a_large_body_is_streamed(server: Running) -> None:
    body = b"x" * 8_000_000
    answer = await server.ask("POST", f"{PROXY}/", body, Content_Type="text/plain")
    assert len(answer.json["body"]) == len(body)


async def test_credentials_are_kept_back(server: Running) -> None:
    answer = await server.ask(
        "GET", f"{PROXY}/x", Impersonate_User="admin",
        Impersonate_Group="system:masters", X_Remote_User="a",
        X_Forwarded_For="10.9.9.9", Connection="X-Hop", X_Hop="1", Cookie="c=1", X_Kept="2",
    )  # fmt: skip
    assert answer.status == 200, answer.text
    seen = {name.lower(): value for name, value in answer.json["headers"]}
    kept_back = {
        "authorization", "impersonate-user", "impersonate-group", "x-remote-user", "x-hop",
        "connection",
    }  # fmt: skip
    assert not kept_back & seen.keys()
    assert (seen["cookie"], seen["x-kept"]) == ("c=1", "2")
    assert seen["x-forwarded-for"] == "10.9.9.9, 127.0.0.1"
    assert seen["x-forwarded-host"] == seen["host"] == f"127.0.0.1:{server.port}"
    assert (seen["x-forwarded-proto"], seen["x-forwarded-uri"]) == ("https", f"{PROXY}/x")


async def test_answers_are_passed_back_as_they_are(server: Running) -> None:
    async with server.opened(f"{PROXY}/headers") as answer:
        headers = answer.headers
        assert (answer.status, answer.reason, headers["X-Own"]) == (418, "teapot", "1")
        assert headers["Content-Encoding"] == "gzip"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Keep-Alive" not in headers
        assert await answer.read() == b"text"
        assert headers["Content-Length"] == str(len(gzip.compress(b"text", mtime=0)))


async def test_a_path_without_slash_is_redirected(server: Running) -> None:
    answer = await server.ask("GET", f"{PROXY}?a=b")
    assert (answer.status, answer.headers["Location"]) == (301, f"{PROXY}/?a=b")
    assert (await server.ask("POST", PROXY)).json["url"] == "/"


@pytest.mark.parametrize(
    ("to", "location"),
    [
        ("/login?x=1", "{}/login?x=1"),
        ("login", "login"),
        ("https://example.com/login", "https://example.com/login"),
        ("http://HOST/login", "http://HOST{}/login"),
        ("/api/v1/nodes/n1/proxy/x", "/api/v1/nodes/n1/proxy/x"),
        ("//[", "//["),
    ],
)
async def test_redirects_lead_through_the_proxy(server: Running, to: str, location: str) -> None:
    host = f"127.0.0.1:{server.port}"
    answer = await server.ask("GET", f"{PROXY}/moved?to={to.replace('HOST', host)}")
    assert answer.status == 302
    assert answer.headers["Location"] == location.replace("HOST", host).format(PROXY)


@pytest.mark.parametrize("query", ["size=3", "size=3&zip=1"])
async def test_links_of_pages_lead_through_the_proxy(server: Running, query: str) -> None:
    answer = await server.ask("GET", f"{PROXY}/page?{query}")
    assert answer.text == f'<a href="{PROXY}/x">yyy</a>'
    assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize("query", ["size=600000", "size=600000&zip=1", "size=90000000&zip=1"])
async def test_large_pages_are_passed_on_as_they_are(server: Running, query: str) -> None:
    answer = await server.ask("GET", f"{PROXY}/page?{query}")
    assert answer.text.startswith('<a href="/x">yyy')
    assert answer.text.endswith("y</a>")
    head = await server.ask("HEAD", f"{PROXY}/page?{query}")
    assert (head.status, head.text) == (200, "")


@asynccontextmanager
async def websocket(server: Running, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    headers = {"Authorization": "Bearer admin-token"}
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(
            f"{server.url}{path}", protocols=("chat",), headers=headers, ssl=server.tls()
        ) as socket,
    ):
        yield socket


async def test_websockets_are_passed_through(server: Running) -> None:
    async with websocket(server, f"{PROXY}/ws") as socket, asyncio.timeout(30):
        assert socket.protocol == "chat"
        await socket.send_str("hello")
        assert (await socket.receive()).data == "HELLO"


async def test_a_backend_that_refuses_the_upgrade(server: Running) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        async with websocket(server, f"{PROXY}/headers"):
            pass
    assert caught.value.status == 418


async def test_a_head_has_no_body(server: Running) -> None:
    answer = await server.ask("HEAD", f"{PROXY}/headers")
    assert (answer.status, answer.text) == (418, "")


async def test_a_backend_that_does_not_answer(server: Running) -> None:
    status = {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}
    await server.ask("PATCH", f"{NODE}/status", {"status": status}, Content_Type=MERGE)
    answer = await server.ask("GET", f"{PROXY}/")
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")
    says = r"error trying to reach service: dial tcp [\w.:]+:1: connect: connection refused"
    assert re.fullmatch(says, answer.json["message"])


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/api/v1/nodes/n2/proxy/", 404, 'nodes "n2" not found'),
        ("/api/v1/nodes/ftp:n1:2/proxy/", 400, 'invalid node request "ftp:n1:2"'),
        (f"{NODE}:9/proxy/", 400, "address not allowed"),
        ("/api/v1/namespaces/default/pods/p/proxy/", 404, 'pods "p" not found'),
        ("/api/v1/namespaces/default/services/s:1/proxy/", 404, 'services "s" not found'),
        ("/api/v1/nodes/n1%2Fproxy/x", 400, "must not be escaped"),
        ("/api/v1/namespaces/default/configmaps/c/proxy/", 404, "could not find the requested"),
    ],
)
async def test_what_is_refused(server: Running, path: str, status: int, says: str) -> None:
    answer = await server.ask("GET", path)
    assert answer.status == status, answer.text
    assert says in json.loads(answer.text)["message"]


async def test_the_proxy_has_rights_of_its_own(server: Running) -> None:
    role: dict[str, Any] = {
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]}],
    }
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    assert (await server.ask("POST", f"{rbac}/clusterroles", role)).status == 201
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "reader"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    }  # fmt: skip
    assert (await server.ask("POST", f"{rbac}/clusterrolebindings", binding)).status == 201
    for method, verb in (("GET", "get"), ("HEAD", "get"), ("POST", "create"), ("PUT", "update")):
        answer = await server.ask(method, f"{PROXY}/x", Impersonate_User="jane")
        assert answer.status == 403, verb
        if method != "HEAD":
            assert f'cannot {verb} resource "nodes/proxy"' in answer.json["message"]
