"""Into a pod through its node's agent: which requests reach it, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moorage.cluster.access.identities import Subject
from tests.apiserver.running_server import Running, serving

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
MERGE = "application/merge-patch+json"
SPDY = "SPDY/3.1"
UPGRADED = (
    f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {SPDY}\r\nConnection: Upgrade\r\n"
    "X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
)


def answer(status: str, text: str, content_type: str = "text/plain") -> str:
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(text)}\r\n"
        f"Connection: close\r\n\r\n{text}"
    )


class Agent:
    """A node agent's listener: gives a set answer, and says everything back in capitals."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.answer = UPGRADED
        self.port = 0
        self.following: asyncio.Queue[bytes] | None = None

    @property
    def lines(self) -> list[str]:
        return [head.partition(" HTTP/1.1\r\n")[0] for head in self.heads]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(self.answer.encode())
        if self.answer == UPGRADED:
            while data := await reader.read(4096):
                writer.write(data.upper())
        if self.following is not None:
            while piece := await self.following.get():
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        writer.close()


class Cluster:
    """A server, one node with its agent, and pods on it."""

    def __init__(self, server: Running, agent: Agent) -> None:
        self.server = server
        self.agent = agent

    async def add_node(self, name: str, status: dict[str, Any]) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        assert (await self.server.ask("POST", NODES, node)).status == 201
        patched = await self.server.ask(
            "PATCH", f"{NODES}/{name}/status", {"status": status}, Content_Type=MERGE
        )
        assert patched.status == 200, patched.text

    async def add_pod(
        self, name: str, *containers: str, node: str = "n1", phase: str = "", **spec: Any
    ) -> None:
        listed = [{"name": container, "image": "i"} for container in containers or ("app",)]
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": listed, **({"nodeName": node} if node else {}), **spec},
        }  # fmt: skip
        assert (await self.server.ask("POST", PODS, pod)).status == 201
        if phase:
            path = f"{PODS}/{name}/status"
            status = {"status": {"phase": phase}}
            assert (await self.server.ask("PATCH", path, status, Content_Type=MERGE)).status == 200

    async def log(self, path: str) -> tuple[int, str]:
        answer = await self.server.ask("GET", f"{PODS}/{path}")
        return answer.status, answer.text if answer.status == 200 else answer.json["message"]

    @asynccontextmanager
    async def log_socket(
        self, path: str, *protocols: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A websocket that asks for a log."""
        headers = {"Authorization": "Bearer admin-token"}
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(
                f"{self.server.url}{PODS}/{path}",
                protocols=protocols, headers=headers, ssl=self.server.tls(),
            ) as websocket,
        ):  # fmt: skip
            yield websocket

    @asynccontextmanager
    async def connection(
        self, path: str, **headers: str
    ) -> AsyncIterator[tuple[str, asyncio.StreamReader, asyncio.StreamWriter]]:
        """A POST that asks for an upgrade: the head of the answer, and the connection."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=self.server.tls()
        )
        request_headers = {
            "Host": "x", "Authorization": "Bearer admin-token", "Content-Length": "0",
            "Connection": "Upgrade", "Upgrade": SPDY,
            "X-Stream-Protocol-Version": "v4.channel.k8s.io", **headers,
        }  # fmt: skip
        lines = [
            f"POST {PODS}/{path} HTTP/1.1",
            *(f"{k}: {v}" for k, v in request_headers.items() if v),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        try:
            async with asyncio.timeout(20):
                yield (await reader.readuntil(b"\r\n\r\n")).decode(), reader, writer
        finally:
            writer.close()

    async def refusal(self, path: str) -> tuple[int, str]:
        """Status and text of what is not upgraded."""
        async with self.connection(path) as (head, reader, _):
            lines = [line.partition(": ") for line in head.lower().split("\r\n")]
            length = next(int(value) for name, _, value in lines if name == "content-length")
            return int(head.split()[1]), (await reader.readexactly(length)).decode()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    agent = Agent()
    async with serving(tmp_path) as server:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        path = "/api/v1/namespaces/default/serviceaccounts"
        assert (await server.ask("POST", path, account)).status == 201
        pair = server.authority.issue("agent", Subject("system:node:n1", hosts=("127.0.0.1",)))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        listener = await asyncio.start_server(agent.talk, "127.0.0.1", 0, ssl=context)
        agent.port = listener.sockets[0].getsockname()[1]
        cluster = Cluster(server, agent)
        addresses = [
            {"type": "Hostname", "address": "nowhere.invalid"},
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "InternalIP", "address": "127.0.0.9"},
        ]
        await cluster.add_node("n1", {"addresses": addresses, **endpoint(agent.port)})
        async with listener:
            yield cluster


def endpoint(port: int) -> dict[str, Any]:
    return {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}


AT = "default/web/app"


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("", f"GET /containerLogs/{AT}"),
        ("?container=app&tailLines=5&timestamps=true&nonsense=1&follow=",
         f"GET /containerLogs/{AT}?timestamps=true&tailLines=5"),
        ("?stream=Stdout&limitBytes=9&sinceSeconds=3&sinceTime=2026-01-01T00:00:00Z&previous=true"
         "&follow=true",
         f"GET /containerLogs/{AT}?follow=true&previous=true&sinceSeconds=3"
         "&sinceTime=2026-01-01T00%3A00%3A00Z&limitBytes=9&stream=Stdout"),
        ("?container=first", "GET /containerLogs/default/web/first"),
    ],
)  # fmt: skip
async def test_a_log_is_what_the_agent_gives(cluster: Cluster, query: str, line: str) -> None:
    await cluster.add_pod("web", initContainers=[{"name": "first", "image": "i"}])
    cluster.agent.answer = answer("200 OK", "hello\n")
    assert await cluster.log(f"web/log{query}") == (200, "hello\n")
    assert cluster.agent.lines == [line]


CHUNKED = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"


async def messages(websocket: aiohttp.ClientWebSocketResponse) -> list[Any]:
    """The messages up to the server's close."""
    async with asyncio.timeout(20):
        return [message.data async for message in websocket]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([], None),
        (["binary.k8s.io"], "binary.k8s.io"),
        (["base64.binary.k8s.io"], "base64.binary.k8s.io"),
        (["v5.channel.k8s.io", "base64.binary.k8s.io", "binary.k8s.io"], "base64.binary.k8s.io"),
    ],
)
async def test_a_log_over_a_websocket_comes_in_messages(
    cluster: Cluster, offered: list[str], chosen: str | None
) -> None:
    await cluster.add_pod("web")
    text = "hello\n" * 20_000
    cluster.agent.answer = answer("200 OK", text)
    async with cluster.log_socket("web/log?container=app&tailLines=5", *offered) as websocket:
        assert websocket.protocol == chosen
        first, *rest = await messages(websocket)
        assert websocket.close_code == aiohttp.WSCloseCode.OK
    if chosen == "base64.binary.k8s.io":
        assert first == ""
        data = b"".join(base64.b64decode(piece, validate=True) for piece in rest)
    else:
        assert first == b""
        data = b"".join(rest)
    assert data.decode() == text
    assert cluster.agent.lines == [f"GET /containerLogs/{AT}?tailLines=5"]


async def test_a_log_that_is_followed_comes_as_it_is_written(cluster: Cluster) -> None:
    await cluster.add_pod("web")
    cluster.agent.answer, cluster.agent.following = CHUNKED, asyncio.Queue()
    async with asyncio.timeout(20), cluster.log_socket("web/log?follow=true") as websocket:
        assert await websocket.receive_bytes() == b""
        for line in (b"one\n", b"two\n"):
            cluster.agent.following.put_nowait(line)
            # What a client sends is ignored.
            await websocket.send_str("nonsense")
            assert await websocket.receive_bytes() == line
        # The client's close is answered, whatever the log does.
        assert await websocket.close()
        assert websocket.close_code == aiohttp.WSCloseCode.OK
    cluster.agent.following.put_nowait(b"")


async def test_interrupted_log_closes_with_an_internal_error(cluster: Cluster) -> None:
    await cluster.add_pod("web")
    cluster.agent.answer, cluster.agent.following = CHUNKED, asyncio.Queue()
    async with cluster.log_socket("web/log?follow=true", "binary.k8s.io") as websocket:
        assert await websocket.receive_bytes() == b""
        cluster.agent.following.put_nowait(b"")
        assert await messages(websocket) == []
        assert websocket.close_code == aiohttp.WSCloseCode.INTERNAL_ERROR


async def test_a_log_is_refused_before_the_upgrade(cluster: Cluster) -> None:
    await cluster.add_pod("web")
    cluster.agent.answer = answer("200 OK", "hello\n")
    handshake = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    other = {**handshake, "Sec_WebSocket_Protocol": "v4.channel.k8s.io"}
    old = {**handshake, "Sec_WebSocket_Version": "6"}
    for name, headers, code, words in (
        ("web", other, 403, "offer none, or one of binary.k8s.io, base64.binary.k8s.io"),
        ("web", old, 400, "Unsupported version"),
        ("web", {**handshake, "Sec_WebSocket_Key": "x"}, 400, "Handshake error"),
        ("gone", handshake, 404, 'pods "gone" not found'),
    ):
        refused = await cluster.server.ask("GET", f"{PODS}/{name}/log", **headers)
        assert (refused.status, words in refused.json["message"]) == (code, True), refused.text


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        ("400 Bad Request", 400, 'so "it" said'),
        ("404 Not Found", 404,
         "the server could not find the requested resource (pods/log web)"),
        ("500 Internal Server Error", 500,
         'an error on the server ("so \\"it\\" said") has prevented the request from succeeding '
         "(pods/log web)"),
    ],
)  # fmt: skip
async def test_an_agents_refusal_of_a_log_is_the_apis(
    cluster: Cluster, status: str, code: int, message: str
) -> None:
    await cluster.add_pod("web")
    cluster.agent.answer = answer(status, 'so "it" said\n')
    refused = await cluster.server.ask("GET", f"{PODS}/web/log")
    assert (refused.status, refused.json["message"]) == (code, message)
    if code != 400:
        cause = {"reason": "UnexpectedServerResponse", "message": 'so "it" said'}
        assert refused.json["details"] == {"name": "web", "kind": "pods/log", "causes": [cause]}


async def test_a_pod_without_a_node_has_no_log(cluster: Cluster) -> None:
    await cluster.add_pod("web", node="")
    answer = await cluster.server.ask("GET", f"{PODS}/web/log")
    assert (answer.status, answer.text) == (204, "")
    assert "Content-Length" not in answer.headers
    assert cluster.agent.heads == []
    assert (await cluster.refusal("web/portforward"))[0] == 400


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "a container name must be specified for pod web, choose one of: [app other] or one "
             "of the init containers: [first]"),
        ("?container=gone", "container gone is not valid for pod web"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("subresource", ["log", "exec", "attach"])
async def test_the_container_must_be_named(
    cluster: Cluster, subresource: str, query: str, message: str
) -> None:
    await cluster.add_pod("web", "app", "other", initContainers=[{"name": "first", "image": "i"}])
    if subresource == "log":
        response = await cluster.log(f"web/log{query}")
    else:
        response = await cluster.refusal(f"web/{subresource}{query}")
    assert response[0] == 400
    assert message in response[1]
    assert cluster.agent.heads == []


async def test_a_node_that_is_not_there_or_says_nothing_of_its_agent(cluster: Cluster) -> None:
    await cluster.add_node("bare", {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]})
    await cluster.add_node("lost", endpoint(1))
    for name, message in (
        ("gone", "node 'gone' of the pod does not exist"),
        ("bare", "the agent of node 'bare' has no endpoint (status.daemonEndpoints is empty)"),
        ("lost", "no preferred addresses found; known addresses: []"),
    ):
        await cluster.add_pod(name, node=name)
        status, text = await cluster.log(f"{name}/log")
        assert (status, message in text) == (500, True), text


async def test_an_agent_that_does_not_answer_is_named(cluster: Cluster) -> None:
    address = [{"type": "Hostname", "address": "127.0.0.1"}]
    await cluster.add_node("closed", {"addresses": address, **endpoint(1)})
    await cluster.add_pod("web", node="closed")
    status, text = await cluster.log("web/log")
    assert status == 500
    assert "dialing the node agent of closed: " in text


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("x@127.0.0.1", 0), ("127.0.0.1/x?", 0), ("127.0.0.1:80#", 0), ("", 0), ("::1%lo", 0),
        ("a b", 0), ("127.0.0.1", 70000), ("127.0.0.1", -1),
    ],
)  # fmt: skip
async def test_what_is_no_address_of_a_server_is_not_connected_to(
    cluster: Cluster, address: str, port: int
) -> None:
    status = {"addresses": [{"type": "InternalIP", "address": address}]}
    await cluster.add_node("liar", {**status, **endpoint(port or cluster.agent.port)})
    await cluster.add_pod("web", node="liar")
    assert (await cluster.log("web/log"))[0] == 500
    proxied = await cluster.server.ask("GET", f"{NODES}/liar/proxy/x")
    assert proxied.status == 500, proxied.text
    assert cluster.agent.heads == []


async def test_an_agent_whose_certificate_names_another_node_is_sent_nothing(
    cluster: Cluster,
) -> None:
    address = [{"type": "InternalIP", "address": "127.0.0.1"}]
    await cluster.add_node("n2", {"addresses": address, **endpoint(cluster.agent.port)})
    await cluster.add_pod("web", node="n2")
    refusal = "the certificate is valid for system:node:n1, not system:node:n2"
    status, text = await cluster.log("web/log")
    assert (status, refusal in text) == (500, True), text
    status, text = await cluster.refusal("web/exec?command=ls")
    assert (status, refusal in text) == (500, True), text
    proxied = await cluster.server.ask("GET", f"{NODES}/n2/proxy/x")
    assert (proxied.status, refusal in proxied.text) == (503, True), proxied.text
    assert cluster.agent.heads == []


async def test_a_redirect_of_an_agent_is_not_followed(cluster: Cluster) -> None:
    await cluster.add_pod("web")
    where = f"https://127.0.0.1:{cluster.agent.port}/stolen"
    cluster.agent.answer = f"HTTP/1.1 302 Found\r\nLocation: {where}\r\nConnection: close\r\n\r\n"
    status, text = await cluster.log("web/log")
    assert (status, "redirects forbidden" in text) == (500, True), text
    assert len(cluster.agent.heads) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("exec?command=sh&command=-c&command=a%20b&stdin=true&stdout=true&stderr=1&tty=false",
         f"POST /exec/{AT}?input=1&output=1&error=1&command=sh&command=-c&command=a+b"),
        ("exec?container=app&command=sh&stdout=true&tty=true",
         f"POST /exec/{AT}?output=1&tty=1&command=sh"),
        ("attach?stdout=true&command=sh", f"POST /attach/{AT}?output=1"),
        ("portforward?ports=80&ports=8080&stdin=true",
         "POST /portForward/default/web?port=80&port=8080"),
        ("portforward", "POST /portForward/default/web"),
    ],
)  # fmt: skip
async def test_a_stream_is_a_pipe_to_the_agent(cluster: Cluster, path: str, line: str) -> None:
    await cluster.add_pod("web", phase="Running")
    async with cluster.connection(f"web/{path}") as (head, reader, writer):
        assert head.startswith("HTTP/1.1 101 ")
        assert "v4.channel.k8s.io" in head
        for words in (b"first ", b"x" * 100_000):
            writer.write(words)
            assert await reader.readexactly(len(words)) == words.upper()
    assert cluster.agent.lines == [line]
    assert f"Upgrade: {SPDY}" in cluster.agent.heads[0]
    # Our credentials are the certificate; the caller's are not the agent's business.
    assert "admin-token" not in cluster.agent.heads[0]


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
async def test_an_agents_refusal_of_a_stream_comes_through(
    cluster: Cluster, subresource: str
) -> None:
    await cluster.add_pod("web")
    cluster.agent.answer = answer("404 Not Found", "<b>never</b>", "text/html")
    async with cluster.connection(f"web/{subresource}") as (head, reader, _):
        assert head.startswith("HTTP/1.1 404 ")
        assert "Content-Type: text/html" in head
        assert await reader.readexactly(12) == b"<b>never</b>"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_takes_no_command(cluster: Cluster, phase: str) -> None:
    await cluster.add_pod("web", phase=phase)
    for subresource, message in (
        ("exec", f"cannot exec into a container in a completed pod; current phase is {phase}"),
        ("attach", f"cannot attach a container in a completed pod; current phase is {phase}"),
    ):
        status, refusal = await cluster.refusal(f"web/{subresource}?command=sh&stdout=true")
        assert (status, message in refusal) == (400, True), refusal
    assert cluster.agent.heads == []
    cluster.agent.answer = answer("200 OK", "last words\n")
    assert await cluster.log("web/log") == (200, "last words\n")


async def test_a_stream_without_an_upgrade_is_a_bad_request(cluster: Cluster) -> None:
    await cluster.add_pod("web")
    refused = await cluster.server.ask("POST", f"{PODS}/web/exec?command=sh&stdout=true")
    assert (refused.status, refused.json["message"]) == (400, "Upgrade request required")
    assert cluster.agent.heads == []


async def test_a_spdy_stream_takes_no_websocket_protocol(cluster: Cluster) -> None:
    await cluster.add_pod("web", phase="Running")
    offered = "SPDY/3.1+portforward.k8s.io, v5.channel.k8s.io"
    connection = cluster.connection("web/portforward", **{"Sec-WebSocket-Protocol": offered})
    async with connection as (head, reader, writer):
        assert head.startswith("HTTP/1.1 101 ")
        assert f"Upgrade: {SPDY}" in head
        writer.write(b"words")
        assert await reader.readexactly(5) == b"WORDS"


async def test_a_tunnel_carries_the_bytes_of_spdy(cluster: Cluster) -> None:
    await cluster.add_pod("web", phase="Running")
    tunnel = "SPDY/3.1+portforward.k8s.io"
    async with cluster.log_socket("web/portforward?ports=80", tunnel) as websocket:
        assert websocket.protocol == tunnel
        await websocket.send_bytes(b"frames")
        async with asyncio.timeout(20):
            assert (await websocket.receive()).data == b"FRAMES"
    assert cluster.agent.lines == ["POST /portForward/default/web?port=80"]
