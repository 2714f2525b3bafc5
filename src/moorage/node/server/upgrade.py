"""Handing an upgraded connection on to the container engine, byte by byte.

The API server's request is repeated to the engine's streaming address with the same upgrade
headers; the engine's answer goes back, and from a 101 on both connections are one pipe. What is
spoken on it is between the API server and the engine. Source: RFC 9110 §7.8; kubelet's
`UpgradeAwareHandler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web

from moorage.api.logs import Log

log = Log(__name__)

_CONNECT_S = 10.0
_HEAD_S = 30.0
_HEAD_LIMIT = 64 * 1024
_BODY_LIMIT = 64 * 1024
_CHUNK = 64 * 1024
# How many bytes may wait for a slow reader before the other side is no longer read.
_HIGH_WATER = 256 * 1024


class DialError(OSError):
    """The engine's streaming endpoint could not be reached; the text says where."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The head of the engine's answer."""

    head: bytes
    status: int
    content_type: str


def wants_upgrade(request: web.Request) -> bool:
    """Whether the request asks to change the protocol of its connection."""
    connection = request.headers.get("Connection", "").lower()
    return "upgrade" in connection and bool(request.headers.get("Upgrade"))


async def hand_on(request: web.Request, url: str) -> web.StreamResponse:
    """Make one pipe of the request's connection and a new one to `url`, until either ends.

    Returns what the handler must return; a refusal of the engine is passed on as it is. Raises
    DialError when the engine cannot be reached. Cancelling closes both connections.
    """
    reader, writer = await _dial(url)
    try:
        writer.write(_request_head(request, url))
        answer = await _read_head(reader, url)
        if answer.status != 101:
            body = await reader.read(_BODY_LIMIT)
            return web.Response(
                status=answer.status, body=body, content_type=answer.content_type or None
            )
        return await _join(request, answer, reader, writer)
    finally:
        writer.close()


async def _dial(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        raise DialError(f"streaming URL {url!r} is not of the form http://host:port/path")
    try:
        async with asyncio.timeout(_CONNECT_S):
            return await asyncio.open_connection(
                parts.hostname, parts.port or 80, limit=_HEAD_LIMIT
            )
    except (TimeoutError, OSError) as error:
        raise DialError(f"the engine's streaming endpoint {parts.netloc}: {error}") from error


def _request_head(request: web.Request, url: str) -> bytes:
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {parts.netloc}"]
    lines += [
        f"{name}: {value}"
        for name, value in request.headers.items()
        if name.lower() not in ("host", "content-length", "authorization")
    ]
    return ("\r\n".join([*lines, "", ""])).encode("latin-1")


async def _read_head(reader: asyncio.StreamReader, url: str) -> _Answer:
    try:
        async with asyncio.timeout(_HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise DialError(f"the engine's streaming endpoint did not answer at {url}") from error
    lines = head.decode("latin-1").split("\r\n")
    fields = lines[0].split(" ", 2)
    if len(fields) < 2 or not fields[1].isdigit():
        raise DialError(f"the engine's streaming endpoint answered {lines[0]!r}")
    return _Answer(head, int(fields[1]), _media_type(lines[1:]))


def _media_type(lines: Iterable[str]) -> str:
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() == "content-type":
            return value.partition(";")[0].strip()
    return ""


async def _join(
    request: web.Request,
    answer: _Answer,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> web.StreamResponse:
    transport = request.transport
    if transport is None:
        return _Done()
    client = _ClientSide(transport)
    transport.set_protocol(client)
    try:
        client.transport.write(answer.head)
        async with asyncio.TaskGroup() as tasks:
            upward = tasks.create_task(client.copy_to(writer))
            await client.copy_from(reader)
            # The engine has said all; what the client still says has no listener.
            upward.cancel()
    except* OSError as group:
        log.debug("pipe broke", error=group.exceptions[0])
    finally:
        client.transport.close()
    return _Done()


class _ClientSide(asyncio.Protocol):
    """The API server's connection, taken over from the HTTP server: raw bytes both ways."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self._received: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_lost = False

    def data_received(self, data: bytes) -> None:
        self._received.put_nowait(data)
        self._waiting += len(data)
        if self._waiting > _HIGH_WATER:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self._received.put_nowait(b"")
        # Half-closed: the other direction goes on, where the transport can do that (TLS can't).
        return self.transport.get_extra_info("ssl_object") is None

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self._is_lost = True
        self._received.put_nowait(b"")
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def copy_to(self, writer: asyncio.StreamWriter) -> None:
        """What the client says, to the engine; its end too."""
        while data := await self._received.get():
            self._waiting -= len(data)
            if self._waiting <= _HIGH_WATER // 2 and not self._is_lost:
                self.transport.resume_reading()
            writer.write(data)
            await writer.drain()
        if self._is_lost:
            writer.close()
        elif writer.can_write_eof():
            writer.write_eof()

    async def copy_from(self, reader: asyncio.StreamReader) -> None:
        """What the engine says, to the client."""
        while data := await reader.read(_CHUNK):
            if self._is_lost:
                return
            self.transport.write(data)
            await self._writable.wait()


class _Done(web.StreamResponse):
    """What a handler returns whose connection is no longer the HTTP server's."""

    def __init__(self) -> None:
        super().__init__(status=101)
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> None:
        del request

    async def write_eof(self, data: bytes = b"") -> None:
        del data
