"""The endpoint as the API server meets it: over TLS on loopback, with an engine behind it."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from moorage.cluster.access.credentials import Pair
from moorage.cluster.access.identities import Authority, Subject
from moorage.node.options import ServerOptions
from moorage.node.pods.worker import PodWorker
from moorage.node.runtime.engine import ExecResult
from moorage.node.server.endpoint import serve
from moorage.wire.cri import CriError, pb
from moorage.wire.serving import Limits
from moorage.wire.streaming.dial import Refused, Upgraded, Upstream, dial
from tests.node.objects import UID, a_pod
from tests.node.pods.lives import Life, living
from tests.ports import free_port

API_SERVER = "kube-apiserver-kubelet-client"
SPDY = "SPDY/3.1"
HOST = "127.0.0.1"


class FakeStreaming:
    """An engine's streaming server: takes an upgrade and says everything back in capitals."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.answer = (
            f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {SPDY}\r\n"
            "Connection: Upgrade\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
        )
        self.url = ""

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(self.answer.encode())
        while data := await reader.read(4096):
            writer.write(data.upper())
            if data.endswith(b"bye"):
                break
        writer.close()


class FakeRoster:
    """The one pod."""

    def __init__(self, worker: PodWorker) -> None:
        self._worker = worker

    def __iter__(self) -> Any:
        return iter([self._worker])

    def find(self, namespace: str, name: str) -> PodWorker | None:
        return self._worker if (namespace, name) == ("shop", "web") else None


class Node:
    """A node whose pod `shop/web` runs, and the ways to call it."""

    def __init__(self, life: Life, directory: Path) -> None:
        self.life = life
        self.streaming = FakeStreaming()
        self.asked: list[Any] = []
        self.authority = Authority(directory / "pki", datetime.now(UTC))
        self._strangers = Authority(directory / "other-pki", datetime.now(UTC))
        self._directory = directory
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    def options(self, *names: str) -> ServerOptions:
        server = self.authority.issue("server", Subject("system:node:n1", hosts=(HOST,)))
        return ServerOptions(
            certificate_file=server.certificate,
            key_file=server.key,
            client_ca_file=self.authority.pair.certificate,
            address=HOST,
            port=self.port,
            api_server_names=frozenset(names),
        )

    def context(self, name: str | None = API_SERVER, *, is_ours: bool = True) -> ssl.SSLContext:
        """A client's side of TLS; without a name it has no certificate."""
        context = ssl.create_default_context(cafile=str(self.authority.pair.certificate))
        if name is not None:
            authority = self.authority if is_ours else self._strangers
            pair: Pair = authority.issue(f"client-{name}".replace(":", "-"), Subject(name))
            context.load_cert_chain(pair.certificate, pair.key)
        return context

    async def get(self, path: str, context: ssl.SSLContext | None = None, **options: Any) -> Any:
        """Status and text of a plain answer."""
        method = options.pop("method", "GET")
        connector = aiohttp.TCPConnector(ssl=context or self.context())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, f"{self.url}{path}", **options) as answer,
        ):
            return answer.status, await answer.text()

    def dial(self, path: str) -> Any:
        upstream = Upstream(url=f"{self.url}{path}", ssl=self.context())
        lines = [("X-Stream-Protocol-Version", "v4.channel.k8s.io")]
        return dial(upstream, "POST", SPDY, lines)

    def write_log(self, text: str) -> None:
        """What the container has written."""
        container = self.life.observer.view(UID).latest("app")
        assert container is not None
        log = Path(container.log_path)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(text)

    # what an engine does

    async def exec_url(self, request: Any) -> str:
        self.asked.append(request)
        return f"{self.streaming.url}/exec/token"

    attach_url = exec_url

    async def port_forward_url(self, sandbox_id: str, ports: Any) -> str:
        self.asked.append((sandbox_id, list(ports)))
        return f"{self.streaming.url}/portforward/token"


@asynccontextmanager
async def a_node(directory: Path, *names: str) -> AsyncIterator[Node]:
    async with living(directory / "node") as life:
        node = Node(life, directory)
        engine: Any = life.engine
        engine.exec_url, engine.attach_url = node.exec_url, node.attach_url
        engine.port_forward_url = node.port_forward_url
        life.begin(a_pod())
        await life.until(lambda: life.engine.running == ["app"])
        await life.look()
        pod_manager: Any = FakeRoster(life.worker)
        behind = await asyncio.start_server(node.streaming.talk, HOST, 0)
        node.streaming.url = f"http://{HOST}:{behind.sockets[0].getsockname()[1]}"
        task = asyncio.ensure_future(serve(node.options(*names), life.context, pod_manager))
        try:
            async with behind:
                await _until_open(node.port, task)
                yield node
        finally:
            task.cancel()
            await asyncio.wait((task,))


async def _until_open(port: int, task: asyncio.Future[None]) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection(HOST, port)
            except ConnectionRefusedError:
                if task.done():
                    task.result()
                await asyncio.sleep(0.005)
            else:
                writer.close()
                return


@pytest.mark.parametrize(
    ("names", "client", "status", "message"),
    [
        ((API_SERVER,), API_SERVER, 200, "ok"),
        ((API_SERVER,), None, 401, "Unauthorized"),
        ((API_SERVER,), "system:node:n1", 403,
         "Forbidden (user=system:node:n1, verb=get, resource=nodes, subresource(s)=[proxy])\n"),
        ((), "anyone", 200, "ok"),
        ((), None, 401, "Unauthorized"),
    ],
)  # fmt: skip
async def test_who_may_call(
    tmp_path: Path, names: tuple[str, ...], client: str | None, status: int, message: str
) -> None:
    async with a_node(tmp_path, *names) as node:
        assert await node.get("/healthz", node.context(client)) == (status, message)


@pytest.mark.slow
async def test_clients_without_a_certificate_keep_no_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(connections=4, reserved=1, head_s=1)
    monkeypatch.setattr(Limits, "for_descriptors", lambda _: limits)
    async with a_node(tmp_path) as node:
        silent = [await asyncio.open_connection(HOST, node.port) for _ in range(8)]
        assert (await node.get("/healthz", node.context(None)))[0] == 401
        assert await node.get("/healthz") == (200, "ok")
        try:
            async with asyncio.timeout(20):
                assert [await reader.read() for reader, _ in silent] == [b""] * 8
        finally:
            for _, writer in silent:
                writer.close()


async def test_a_certificate_of_another_authority_ends_the_handshake(tmp_path: Path) -> None:
    async with a_node(tmp_path, API_SERVER) as node:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
            await node.get("/healthz", node.context(API_SERVER, is_ours=False))


async def test_plain_http_is_not_answered(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node:
        reader, writer = await asyncio.open_connection(HOST, node.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200" not in await reader.read(100)
        writer.close()


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/exec/shop/web/app?command=sh&command=-c&command=a%20b&input=1&output=1&error=1",
         pb.ExecRequest(container_id="c", cmd=["sh", "-c", "a b"], stdin=True, stdout=True,
                        stderr=True)),
        (f"/exec/shop/web/{UID}/app?command=sh&output=1&error=1&tty=1",
         pb.ExecRequest(container_id="c", cmd=["sh"], stdout=True, tty=True)),
        ("/attach/shop/web/app?output=1&error=1",
         pb.AttachRequest(container_id="c", stdout=True, stderr=True)),
        (f"/portForward/shop/web/{UID}?port=80&port=8080,9090", [80, 8080, 9090]),
    ],
)  # fmt: skip
async def test_a_connection_becomes_one_pipe_into_the_engine(
    tmp_path: Path, path: str, asked: Any
) -> None:
    async with a_node(tmp_path, API_SERVER) as node:
        async with node.dial(path) as answer:
            assert isinstance(answer, Upgraded)
            assert answer.head.headers["X-Stream-Protocol-Version"] == "v4.channel.k8s.io"
            for words in (b"first ", b"x" * 100_000):
                await answer.connection.write(words)
                assert await _read(answer, len(words)) == words.upper()
            # The engine's end is the caller's.
            await answer.connection.write(b"bye")
            assert await _read(answer, 4) == b"BYE"
        (result,) = node.asked
        if isinstance(asked, list):
            assert result[1] == asked
        else:
            asked.container_id = result.container_id
            assert result == asked
        assert f"Upgrade: {SPDY}" in node.streaming.heads[0]


async def _read(answer: Upgraded, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := await answer.connection.read()):
        data += more
    return data


async def test_a_refusal_of_the_engine_comes_through(tmp_path: Path) -> None:
    async with a_node(tmp_path, API_SERVER) as node:
        node.streaming.answer = (
            "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nnever"
        )
        async with node.dial("/exec/shop/web/app?command=sh&output=1") as answer:
            assert isinstance(answer, Refused)
            assert (answer.head.status, answer.body) == (403, b"never")


async def test_unreachable_engine_is_named_in_the_error(tmp_path: Path) -> None:
    async with a_node(tmp_path, API_SERVER) as node:
        node.streaming.url = f"http://{HOST}:1"
        async with node.dial("/exec/shop/web/app?command=sh&output=1") as answer:
            assert isinstance(answer, Refused)
            assert answer.head.status == 500
            assert b"error dialing backend: 127.0.0.1:1" in answer.body


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/exec/shop/web/app?command=sh&output=1", 400, "Upgrade request required"),
        ("/exec/shop/web/app?command=sh", 400, "at least 1 of stdin, stdout, stderr"),
        ("/exec/shop/gone/app?output=1", 404, "pod does not exist"),
        ("/exec/shop/web/gone?output=1", 404, 'container not found ("gone")'),
        ("/exec/shop/web/another-uid/app?output=1", 404, "pod not found"),
        ("/attach/shop/web/app?tty=1", 400, "at least 1 of"),
        ("/portForward/shop/web/another-uid", 404, "pod not found"),
        ("/containerLogs/shop/gone/app", 404, 'pod "gone" does not exist'),
        ("/containerLogs/shop/web/gone", 404, 'container "gone" not found in pod "web"'),
        ("/containerLogs/shop/web/app?tailLines=x", 400, "message"),
        ("/nothing", 404, "Not Found"),
    ],
)
async def test_refusals(tmp_path: Path, path: str, status: int, message: str) -> None:
    async with a_node(tmp_path, API_SERVER) as node:
        code, text = await node.get(path)
        assert code == status
        assert message in text


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (grpc.StatusCode.NOT_FOUND, 404),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 429),
        (grpc.StatusCode.UNKNOWN, 500),
    ],
)
async def test_the_engines_errors_have_codes(
    tmp_path: Path, code: grpc.StatusCode, status: int
) -> None:
    async def refuse(*_: Any) -> str:
        raise CriError("Exec", code, "why not")

    async with a_node(tmp_path, API_SERVER) as node:
        engine: Any = node.life.engine
        engine.exec_url = refuse
        async with node.dial("/exec/shop/web/app?command=sh&output=1") as answer:
            assert isinstance(answer, Refused)
            assert answer.head.status == status
            assert b"why not" in answer.body


@pytest.mark.parametrize(("code", "status"), [(0, 200), (3, 500)])
async def test_a_command_may_be_run_to_its_end(tmp_path: Path, code: int, status: int) -> None:
    async def run(container_id: str, command: Any) -> ExecResult:
        del container_id
        return ExecResult(" ".join(command).encode(), b"!", code)

    async with a_node(tmp_path, API_SERVER) as node:
        engine: Any = node.life.engine
        engine.run_command = run
        http_status, text = await node.get("/run/shop/web/app?cmd=echo%20hello", method="POST")
        assert http_status == status
        assert "echo hello" in text


@pytest.mark.parametrize("path", ["/pods", "/pods/", "/runningpods", "/runningpods/"])
async def test_a_slash_at_the_end_of_a_path_makes_no_difference(tmp_path: Path, path: str) -> None:
    async with a_node(tmp_path, API_SERVER) as node:
        status, text = await node.get(path)
        assert status == 200
        assert [pod["metadata"]["name"] for pod in json.loads(text)["items"]] == ["web"]


async def test_pods_and_logs_of_the_node(tmp_path: Path) -> None:
    async with a_node(tmp_path, API_SERVER) as node:
        status, text = await node.get("/pods")
        assert status == 200
        (pod,) = json.loads(text)["items"]
        assert pod["metadata"]["name"] == "web"
        node.write_log("2026-01-01T00:00:00.000000000Z stdout F hello\n")
        status, text = await node.get("/containerLogs/shop/web/app")
        assert (status, text) == (200, "hello\n")
        status, text = await node.get("/metrics")
        assert status == 200
        assert "\nkubelet_running_pods 1\n" in text.replace("1.0\n", "1\n")
        assert '\nkubelet_running_containers{container_state="running"} 1' in text
        assert "\n# TYPE kubelet_runtime_operations_total counter\n" in text
        assert "\n# TYPE rest_client_requests_total counter\n" in text
        assert "\nprocess_open_fds " in text


async def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node:
        pod_manager: Any = FakeRoster(node.life.worker)
        with pytest.raises(OSError, match="in use"):
            await serve(node.options(), node.life.context, pod_manager)
