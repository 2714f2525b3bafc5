"""Upgrade client for the kubelet's endpoint and an engine's streaming URL.

    async with dial(upstream, "POST", SPDY, lines) as answer:   # Upgraded or Refused

aiohttp's client is not used, because it owns its connections: here the caller owns the connection
from the first byte after the answer's head, and h11 only parses; it is imported at the first call.
Leaving the block closes the connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from moorage.api.errors import StatusError
from moorage.wire.streaming.connection import Connection, Deadlines
from moorage.wire.streaming.upgrade import (
    AnswerHead,
    HeadError,
    Headers,
    answer_head,
    upgrade_request,
)

if TYPE_CHECKING:
    import h11


# Connector: connections to servers that may be hostile, for aiohttp's client.
#
# The client asks for one answer at a time. A server that sends answers without end (`100 Continue`,
# or whole ones while the connection waits in the pool) would fill memory, as the client queues all.

MOST_ANSWERS: Final = 16
"""Answers that may wait on a connection: the one asked for, and what is sent before it."""


class _BoundedHandler(ResponseHandler):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if len(self) > MOST_ANSWERS:
            self._buffer.clear()
            self.set_exception(
                aiohttp.ClientPayloadError(f"the server sent more than {MOST_ANSWERS} answers")
            )
            if self.transport is not None:
                self.transport.abort()


class Connector(aiohttp.TCPConnector):
    """A TCPConnector that ends connections on which answers pile up."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = self._new_handler  # type: ignore[assignment]

    def _new_handler(self) -> ResponseHandler:
        return _BoundedHandler(asyncio.get_running_loop())


_HEAD_LIMIT_BYTES = 64 * 1024
_BODY_LIMIT_BYTES = 64 * 1024
_SWITCHING = HTTPStatus.SWITCHING_PROTOCOLS
_INTERIM = frozenset(range(100, 200)) - {_SWITCHING}
_PORTS = {"http": 80, "https": 443}


class DialError(StatusError):
    """The upstream is unreachable, or did not respond as an HTTP server.

    Status 500 without a reason, as in the Kubernetes API.
    """

    @classmethod
    def of(cls, upstream: Upstream, why: object) -> DialError:
        """Return the error for an upstream, without the URL's path, which may hold a token."""
        return cls(f"error dialing backend: {upstream.place}: {why}")


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """A server's address for one upgrade.

    `url` is `http://` or `https://`, path and query included, already escaped. `ssl` verifies the
    server and holds the client certificate; `server_name` replaces the URL's host in the
    verification. With `socket` the connection is made to that Unix socket. `headers` are added to
    the request (a bearer token).
    """

    url: str
    headers: Headers = msgspec.field(default_factory=dict)
    ssl: ssl.SSLContext | None = None
    server_name: str = ""
    socket: Path | None = None

    @property
    def place(self) -> str:
        """Return the address for messages, without the path, which may hold a token."""
        if self.socket is not None:
            return str(self.socket)
        try:
            return URL(self.url, encoded=True).authority
        except ValueError:
            return "not a valid URL"


class Upgraded(msgspec.Struct, frozen=True):
    """A 101 response and the byte stream after it."""

    head: AnswerHead
    connection: Connection


class Refused(msgspec.Struct, frozen=True):
    """Any other response, with the beginning of its body (64 KiB)."""

    head: AnswerHead
    body: bytes


@asynccontextmanager
async def dial(
    upstream: Upstream,
    method: str,
    protocol: str,
    lines: Iterable[tuple[str, str]] = (),
    deadlines: Deadlines | None = None,
) -> AsyncIterator[Upgraded | Refused]:
    """Connect, request the upgrade, and yield the response; leaving closes the connection.

    Connecting and the exchange have `deadlines.dial_s` each. Raises DialError when the upstream
    cannot be reached or does not respond as an HTTP server.
    """
    limits = deadlines or Deadlines()
    try:
        async with asyncio.timeout(limits.dial_s):
            connection = await connect(upstream)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise DialError.of(upstream, str(error) or "timed out") from error
    async with connection:
        try:
            async with asyncio.timeout(limits.dial_s):
                answer = await _ask(connection, upstream, method, protocol, lines)
        except (OSError, ValueError) as error:
            raise DialError.of(upstream, str(error) or "timed out") from error
        yield answer


async def connect(upstream: Upstream) -> Connection:
    """Connect to an upstream. Raises OSError."""
    loop = asyncio.get_running_loop()
    url = URL(upstream.url, encoded=True)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("the URL must be http or https and name a host")
    context = (upstream.ssl or ssl.create_default_context()) if url.scheme == "https" else None
    name = (upstream.server_name or url.host) if context else None
    if upstream.socket is not None:
        _, connection = await loop.create_unix_connection(
            Connection, str(upstream.socket), ssl=context, server_hostname=name
        )
    else:
        _, connection = await loop.create_connection(
            Connection, url.host, url.port or _PORTS[url.scheme], ssl=context, server_hostname=name
        )
    return connection


async def _ask(
    connection: Connection,
    upstream: Upstream,
    method: str,
    protocol: str,
    lines: Iterable[tuple[str, str]],
) -> Upgraded | Refused:
    """Send the upgrade request and read the response. Raises HeadError and OSError."""
    import h11

    url = URL(upstream.url, encoded=True)
    own = tuple(upstream.headers.items())
    exchange = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_LIMIT_BYTES)
    try:
        request = exchange.send(
            upgrade_request(method, url.raw_path_qs, url.authority, protocol, (*own, *lines))
        )
        exchange.send(h11.EndOfMessage())
    except h11.LocalProtocolError as error:
        # The library's message quotes the header, which may hold a token.
        raise HeadError("a header of the request has characters that HTTP forbids") from error
    await connection.write(request or b"")
    try:
        answer = await _read_answer(connection, exchange)
    except h11.RemoteProtocolError as error:
        raise HeadError(f"not an HTTP answer: {error}") from error
    head = answer_head(answer)
    if head.status == _SWITCHING:
        connection.unread(exchange.trailing_data[0])
        return Upgraded(head, connection)
    return Refused(head, await _read_body(connection, exchange))


async def _read_answer(
    connection: Connection, exchange: h11.Connection
) -> h11.Response | h11.InformationalResponse:
    """Return the final response or the 101; skips other interim ones. Raises HeadError at EOF."""
    import h11

    answers = (h11.Response, h11.InformationalResponse)
    while True:
        event = exchange.next_event()
        if event is h11.NEED_DATA:
            data = await connection.read()
            if not data:
                raise HeadError("the server closed the connection without an answer")
            exchange.receive_data(data)
        elif isinstance(event, answers) and event.status_code not in _INTERIM:
            return event


async def _read_body(connection: Connection, exchange: h11.Connection) -> bytes:
    """Return the first 64 KiB of a refusal's body, for the message.

    Reads no more than it needs. Returns the part before a protocol error or a reset.
    """
    import h11

    body = b""
    try:
        while len(body) < _BODY_LIMIT_BYTES:
            event = exchange.next_event()
            if event is h11.NEED_DATA:
                exchange.receive_data(await connection.read())
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                break
    except (h11.RemoteProtocolError, OSError):
        return body
    return body[:_BODY_LIMIT_BYTES]
