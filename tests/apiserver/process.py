"""An API server in a process of its own, and connections to it that send bytes as they are."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import select
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage.cluster.creation import open_cluster
from moorage.cluster.layout import Layout
from moorage.cluster.settings import Choices
from moorage.cluster.supervision.supervise import MEMORY_ENVIRONMENT
from moorage.cluster.supervision.supervisor import NOTIFY_VARIABLE, READY_MESSAGE
from moorage.wire.client.config import load_kubeconfig
from tests.apiserver.fuzz import Request
from tests.forks import Fork
from tests.ports import free_port

_STREAM_S = 0.1
_READY_S = 30.0
_ANSWER_S = 60.0

# Where upstream, too, answers a request that makes no sense with 500. Measured.
UPSTREAM_500 = re.compile(
    r"resourceVersion: Invalid value|unknown patch type|does not contain declared merge key|"
    r"the list of retainKeys must contain|resourceVersion should not be set on objects|"
    r"strconv\.ParseUint: parsing|failed to create typed patch object|"
    r"failed to convert the applied object|error decoding YAML: line|no preferred addresses found"
)

# The server is well, and what the request is to be forwarded to is not there.
NO_BACKEND_503 = re.compile(r"no endpoints available for service|error trying to reach service")


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


@contextlib.contextmanager
def server_process(directory: Path) -> Iterator[Server]:
    """A server with its data in a directory, ready; it is ended with the context."""
    layout = Layout(directory / "data")
    open_cluster(layout, Choices(has_node=False, api_port=free_port()))
    config = load_kubeconfig(layout.kubeconfig)
    log = directory / "apiserver.log"
    read_end, write_end = os.pipe()
    with log.open("wb") as errors:
        process = Fork(
            ["moorage.cluster.parts", "apiserver", str(layout.root)],
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


def is_fault(status: int, body: bytes) -> bool:
    """Whether an answer says that something is broken."""
    if status == 500:
        return not UPSTREAM_500.search(body.decode(errors="replace"))
    if status == 503:
        return not NO_BACKEND_503.search(body.decode(errors="replace"))
    return status in (501, 502)


def plain_request(method: str, target: str, body: Any = None) -> Request:
    """A request with a JSON body."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return Request(method, target, f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
