"""Hostile requests at random against a server process: never 500, never slow, never large.

A few seconds with a fixed seed; `MOORAGE_FUZZ_S` says for how long otherwise, with a new seed
unless `MOORAGE_FUZZ_SEED` names one. A failure prints the seed and the request.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import select
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from moorage.client.config import load_kubeconfig
from moorage.cluster.choices import Choices
from moorage.cluster.creation import open_cluster
from moorage.cluster.layout import Layout
from moorage.cluster.supervise import MEMORY_ENVIRONMENT
from moorage.cluster.supervisor import NOTIFY_VARIABLE, READY_MESSAGE
from moorage.registry.kinds import STORED_KINDS
from tests.apiserver.fuzz import Fuzz, Request
from tests.ports import free_port

_FOR_S = float(os.environ.get("MOORAGE_FUZZ_S", "0"))
_SHORT_REQUESTS, _SHORT_LARGE = 600, 6
_SEED = int(os.environ.get("MOORAGE_FUZZ_SEED", str(int(time.time()) if _FOR_S else 1)))

SLOWEST_S = 2.0
"""The longest that any answer of the long form may take."""

MOST_RSS_MIB = 1024
"""The most that the server's resident memory may be."""

_WORKERS = 3
_CLEAN_EVERY = 300
_STREAM_S = 0.1
_ENOUGH_FAULTS = 10
_READY_S = 30.0
_ANSWER_S = 60.0

# Where upstream, too, answers a request that makes no sense with 500. Measured.
_UPSTREAM_500 = re.compile(
    r"resourceVersion: Invalid value|unknown patch type|does not contain declared merge key|"
    r"the list of retainKeys must contain|resourceVersion should not be set on objects|"
    r"strconv\.ParseUint: parsing|failed to create typed patch object|"
    r"failed to convert the applied object|error decoding YAML: line|no preferred addresses found"
)

# The server is well, and what the request is to be forwarded to is not there.
_NO_BACKEND_503 = re.compile(r"no endpoints available for service|error trying to reach service")

pytestmark = pytest.mark.timeout(_FOR_S * 1.2 + 180)


@dataclass
class Server:
    """A server process and how to reach it."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    tls: ssl.SSLContext
    log: Path

    @property
    def rss_mib(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert match is not None, "the server is gone"
        return int(match[1]) // 1024


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    layout = Layout(tmp_path / "data")
    open_cluster(layout, Choices(has_node=False, api_port=free_port()))
    config = load_kubeconfig(layout.kubeconfig)
    log = tmp_path / "apiserver.log"
    read_end, write_end = os.pipe()
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "moorage.cluster.parts", "apiserver", str(layout.root)],
            env={**os.environ, **MEMORY_ENVIRONMENT, NOTIFY_VARIABLE: str(write_end)},
            pass_fds=(write_end,),
            stdout=errors,
            stderr=errors,
        )
    os.close(write_end)
    try:
        assert _is_ready(read_end), f"the server is not ready: {log.read_text()}"
        host, _, port = config.server.removeprefix("https://").partition(":")
        tls = config.ssl_context()
        assert tls is not None
        yield Server(process, host, int(port), tls, log)
    finally:
        os.close(read_end)
        process.terminate()
        process.wait()


def _is_ready(notices: int) -> bool:
    """Whether the server's message comes, among its beats, before the deadline or its end."""
    output = b""
    deadline = time.monotonic() + _READY_S
    while READY_MESSAGE not in output:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([notices], [], [], left_s)[0]:
            return False
        piece = os.read(notices, 4096)
        if not piece:
            return False
        output += piece
    return True


class Connection:
    """A connection that is made again whenever it is lost."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader

    async def ask(self, request: Request) -> tuple[int, bytes]:
        """The answer's status (0: the connection was closed instead) and body."""
        if self._writer is None:
            server = self._server
            self._reader, self._writer = await asyncio.open_connection(
                server.host, server.port, ssl=server.tls, limit=1 << 26
            )
        try:
            self._writer.write(request.data)
            await self._writer.drain()
            if request.streams:
                return await self._glimpse()
            return await asyncio.wait_for(self._answer(request.method), _ANSWER_S)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            self.close()
            return 0, b""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._writer = None

    async def _glimpse(self) -> tuple[int, bytes]:
        """The beginning of what may never end."""
        try:
            async with asyncio.timeout(_STREAM_S):
                start = await self._reader.read(1 << 16)
        except TimeoutError:
            start = b""
        self.close()
        parts = start.split(b" ", 2)
        return (int(parts[1]) if len(parts) > 2 and parts[1].isdigit() else 0), start

    async def _answer(self, method: str) -> tuple[int, bytes]:
        while True:
            head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
            status = int(head.split(b" ", 2)[1])
            if status != 100:
                break
        body = b"" if method == "HEAD" else await self._body(head)
        if b"connection: close" in head or head.startswith(b"http/1.0"):
            self.close()
        return status, body

    async def _body(self, head: bytes) -> bytes:
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None:
            return await self._reader.readexactly(int(length[1]))
        if b"transfer-encoding: chunked" in head:
            pieces = []
            while size := int(await self._reader.readline(), 16):
                pieces.append(await self._reader.readexactly(size))
                await self._reader.readexactly(2)
            await self._reader.readexactly(2)
            return b"".join(pieces)
        body = await self._reader.read()
        self.close()
        return body


@dataclass
class Outcome:
    """What was seen."""

    statuses: Counter[int] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest: str = ""
    slowest_bystander_s: float = 0.0
    most_rss_mib: int = 0

    def see(self, request: Request, status: int, body: bytes, took_s: float) -> None:
        self.statuses[status] += 1
        if took_s > self.slowest_s and not _waits(body):
            self.slowest_s, self.slowest = took_s, f"{request.method} {request.target}"
        if _is_fault(status, body):
            self.faults.append(
                f"{status} {body[:500]!r}\nfor {request.data[:3000]!r} ({len(request.data)} bytes)"
            )


def _waits(body: bytes) -> bool:
    """Whether the answer is late on purpose: a revision that was still to come."""
    return b"Too large resource version" in body


def _is_fault(status: int, body: bytes) -> bool:
    if status == 500:
        return not _UPSTREAM_500.search(body.decode(errors="replace"))
    if status == 503:
        return not _NO_BACKEND_503.search(body.decode(errors="replace"))
    return status in (501, 502)


class Attack:
    """One seed's requests against one server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.outcome = Outcome()
        self._fuzz = Fuzz(_SEED)
        self._large = asyncio.Lock()
        self._sent = 0
        self._ends = time.monotonic() + _FOR_S
        self._is_over = asyncio.Event()

    async def run(self) -> Outcome:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._stand_by())
            async with asyncio.TaskGroup() as workers:
                for _ in range(_WORKERS):
                    workers.create_task(self._work())
            self._is_over.set()
        return self.outcome

    def _goes_on(self) -> bool:
        if len(self.outcome.faults) >= _ENOUGH_FAULTS:
            return False
        if _FOR_S:
            return time.monotonic() < self._ends
        return self._sent < _SHORT_REQUESTS

    async def _work(self) -> None:
        connection = Connection(self.server)
        every = 40 if _FOR_S else _SHORT_REQUESTS // _SHORT_LARGE
        while self._goes_on():
            self._sent += 1
            if self._sent % every == 0:
                async with self._large:
                    await self._ask(connection, self._fuzz.large())
            else:
                await self._ask(connection, self._fuzz.request())
            if self._sent % _CLEAN_EVERY == 0:
                await self._clean(connection)
            if self._sent % 50 == 0:
                rss_mib = self.server.rss_mib
                self.outcome.most_rss_mib = max(self.outcome.most_rss_mib, rss_mib)
        connection.close()

    async def _ask(self, connection: Connection, request: Request) -> None:
        began = time.monotonic()
        status, body = await connection.ask(request)
        self.outcome.see(request, status, body, time.monotonic() - began)

    async def _clean(self, connection: Connection) -> None:
        """Delete what was made, so that memory is not for what is kept on purpose."""
        for kind in STORED_KINDS:
            if kind.plural in ("namespaces", "clusterroles", "clusterrolebindings"):
                continue
            served = kind.storage
            root = f"/apis/{served.group}" if served.group else "/api"
            for namespace in ("default", "fuzz") if kind.is_namespaced else ("",):
                place = f"/namespaces/{namespace}" if namespace else ""
                target = f"{root}/{served.version}{place}/{kind.plural}?gracePeriodSeconds=0"
                await connection.ask(_plain("DELETE", target))

    async def _stand_by(self) -> None:
        """Ask for something small all the time, as everybody else does."""
        connection = Connection(self.server)
        while not self._is_over.is_set():
            began = time.monotonic()
            status, _ = await connection.ask(_plain("GET", "/readyz"))
            took_s = time.monotonic() - began
            assert status == 200
            self.outcome.slowest_bystander_s = max(self.outcome.slowest_bystander_s, took_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await self._is_over.wait()
        connection.close()


def _plain(method: str, target: str, body: Any = None) -> Request:
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return Request(method, target, f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)


@contextlib.asynccontextmanager
async def _prepared(server: Server) -> AsyncIterator[Connection]:
    """Something to patch in every kind that takes an object without a specification."""
    connection = Connection(server)
    await connection.ask(_plain("POST", "/api/v1/namespaces", {"metadata": {"name": "fuzz"}}))
    for namespace in ("default", "fuzz"):
        root = f"/api/v1/namespaces/{namespace}"
        for name in ("present", "default"):
            await connection.ask(
                _plain("POST", f"{root}/serviceaccounts", {"metadata": {"name": name}})
            )
        for plural in ("configmaps", "secrets", "endpoints"):
            body = {"metadata": {"name": "present", "labels": {"a": "b"}}}
            await connection.ask(_plain("POST", f"{root}/{plural}", body))
        spec = {"containers": [{"name": "c", "image": "i", "env": [{"name": "a", "value": "b"}]}]}
        pod = {"metadata": {"name": "present", "labels": {"a": "b"}}, "spec": spec}
        await connection.ask(_plain("POST", f"{root}/pods", pod))
    yield connection
    connection.close()


async def test_hostile_requests(server: Server, tmp_path: Path) -> None:
    async with _prepared(server) as connection:
        outcome = await Attack(server).run()
        # The server closes what was idle for as long as a long attack lasts.
        connection.close()
        status, _ = await connection.ask(_plain("GET", "/api/v1/pods"))
    outcome.most_rss_mib = max(outcome.most_rss_mib, server.rss_mib)
    print(
        f"seed {_SEED}: {outcome.statuses.total()} requests {dict(outcome.statuses)}; slowest "
        f"{outcome.slowest_s:.2f} s ({outcome.slowest}), another's "
        f"{outcome.slowest_bystander_s:.2f} s; resident memory up to {outcome.most_rss_mib} MiB "
        f"of {MOST_RSS_MIB}"
    )
    if outcome.faults:
        faults = "\n\n".join(outcome.faults)
        (tmp_path / "faults").write_text(faults)
        pytest.fail(f"seed {_SEED}: {faults}\n{server.log.read_text()[-20_000:]}")
    assert "request broke" not in server.log.read_text()
    assert server.process.poll() is None
    assert status == 200
    assert outcome.most_rss_mib < MOST_RSS_MIB
    if _FOR_S:
        assert outcome.slowest_s < SLOWEST_S, outcome.slowest
        assert outcome.slowest_bystander_s < SLOWEST_S
