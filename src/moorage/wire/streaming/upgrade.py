"""HTTP upgrade heads: parses requests, writes both heads, selects the headers to forward.

    GET|POST … + Connection: Upgrade + Upgrade: websocket | SPDY/3.1   →   101, then raw bytes

Only the headers in the tables below are forwarded: the others are hop-by-hop, and the caller's
credentials must not reach the next hop. Source: RFC 9110 §7.8, RFC 6455 §4; Kubernetes `httpstream`
(header `X-Stream-Protocol-Version`, one line for each version offered).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict, CIMultiDictProxy

from moorage.wire.streaming.connection import Connection

if TYPE_CHECKING:
    import h11


SPDY = "SPDY/3.1"
WEBSOCKET = "websocket"
PROTOCOL_VERSION = "X-Stream-Protocol-Version"
SUBPROTOCOL = "Sec-WebSocket-Protocol"
TOKEN_SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."

_REQUEST_HEADERS = (
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Extensions",
)
_ANSWER_HEADERS = (
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    "Sec-WebSocket-Accept",
    "Sec-WebSocket-Extensions",
)

Headers = Mapping[str, str]
HeaderLines = tuple[tuple[str, str], ...]


class HeadError(ValueError):
    """An invalid head of an HTTP response."""


class AnswerHead(msgspec.Struct, frozen=True):
    """Status line and headers of an HTTP response."""

    status: int
    reason: str
    headers: CIMultiDictProxy[str]


def upgrade_of(request: web.BaseRequest) -> str:
    """Return the protocol that a request upgrades to, empty for none.

    Known protocols are returned in this module's spelling, since the header ignores case.
    """
    lines = request.headers.getall("Connection", [])
    if not any("upgrade" in line.lower() for line in lines):
        return ""
    protocol = request.headers.get("Upgrade", "")
    return next(
        (known for known in (SPDY, WEBSOCKET) if known.lower() == protocol.lower()), protocol
    )


def offered_versions(request: web.BaseRequest) -> tuple[str, ...]:
    """Return the stream protocol versions that a SPDY request offers, best first."""
    return _listed(request.headers.getall(PROTOCOL_VERSION, []))


def offered_subprotocols(request: web.BaseRequest) -> tuple[str, ...]:
    """Return the offered websocket subprotocols, without the one that carries a bearer token."""
    offered = _listed(request.headers.getall(SUBPROTOCOL, []))
    return tuple(name for name in offered if not name.startswith(TOKEN_SUBPROTOCOL))


def passed_on(request: web.BaseRequest) -> HeaderLines:
    """Return the headers of an upgrade request to forward: no credentials, no token."""
    lines = [(name, value) for name in _REQUEST_HEADERS if name != SUBPROTOCOL
             for value in request.headers.getall(name, [])]  # fmt: skip
    if subprotocols := offered_subprotocols(request):
        lines.append((SUBPROTOCOL, ", ".join(subprotocols)))
    return tuple(lines)


def passed_back(answer: AnswerHead) -> HeaderLines:
    """Return the headers of a 101 response to forward to the client."""
    return tuple(
        (name, value) for name in _ANSWER_HEADERS for value in answer.headers.getall(name, [])
    )


def upgrade_request(
    method: str, target: str, host: str, protocol: str, lines: Iterable[tuple[str, str]]
) -> h11.Request:
    """Return an upgrade request. Raises h11.LocalProtocolError for invalid header characters."""
    import h11

    upgrade = (("Host", host), ("Connection", "Upgrade"), ("Upgrade", protocol))
    headers = (*upgrade, *lines, ("Content-Length", "0"))
    return h11.Request(
        method=method,
        target=_encoded(target),
        headers=[(_encoded(name), _encoded(value)) for name, value in headers],
    )


def answer_head(answer: h11.Response | h11.InformationalResponse) -> AnswerHead:
    """Return a response's status line and headers as text (Latin-1)."""
    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in answer.headers.raw_items():
        headers.add(name.decode("latin-1"), value.decode("latin-1"))
    return AnswerHead(
        answer.status_code, answer.reason.decode("latin-1"), CIMultiDictProxy(headers)
    )


def switching_head(protocol: str, lines: Iterable[tuple[str, str]]) -> bytes:
    """Return the head of a 101 response. Raises ValueError for a header with a line break."""
    upgrade = (("Connection", "Upgrade"), ("Upgrade", protocol))
    return _head("HTTP/1.1 101 Switching Protocols", (*upgrade, *lines))


def _head(first: str, lines: Iterable[tuple[str, str]]) -> bytes:
    whole = [first, *(f"{name}: {value}" for name, value in lines)]
    if any("\r" in line or "\n" in line for line in whole):
        raise ValueError("a header must not contain a line break")
    text = "".join(f"{line}\r\n" for line in whole)
    return _encoded(f"{text}\r\n")


def _encoded(text: str) -> bytes:
    """Return a header's bytes; aiohttp passes bytes that are not UTF-8 as surrogates."""
    return text.encode(errors="surrogateescape")


def _listed(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for line in lines for part in line.split(",") if (name := part.strip()))


# Connection takeover from the HTTP server, after it has read the request's head.
#
#     connection = await take_over(request, SPDY, lines)   # 101 is sent
#     …
#     return HandledResponse()                             # the handler's response object
#
# Source: RFC 9110 §7.8.


async def take_over(
    request: web.BaseRequest, protocol: str, lines: Iterable[tuple[str, str]]
) -> Connection:
    """Answer 101 with these header lines. Returns the connection, which the caller must close.

    Raises ConnectionResetError when the client has disconnected.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client disconnected")
    former = request.protocol
    connection = Connection.on(transport)
    if (handler := asyncio.current_task()) is not None:
        # The HTTP server keeps its connection state until connection_lost, and some servers cancel
        # the handler then: so it is called after the handler.
        handler.add_done_callback(lambda _: former.connection_lost(None))
    await connection.write(switching_head(protocol, lines))
    return connection


class HandledResponse(web.StreamResponse):
    """A response that sends nothing: the HTTP server does not own the connection any more."""

    def __init__(self) -> None:
        super().__init__(status=101)
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        del request
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        del data
