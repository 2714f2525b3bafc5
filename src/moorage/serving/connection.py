"""One HTTP connection: aiohttp's, with bounds on what a client can make the server keep.

Of a pipelining client only a few requests are read ahead, and little is kept of what a client does
not read. What cannot be parsed is answered as Go's server does: 431 for a head that is too large,
405 for a method that does not exist, 400 for the rest. Everything that depends on the inside of
aiohttp's `RequestHandler` is in this file.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import cast

from aiohttp import web
from aiohttp.http import HttpRequestParser
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from moorage.api.logs import Log

# Requests read ahead of the one being answered.
_READ_AHEAD = 4
_READ_BYTES = 64 * 1024
_WRITE_HIGH_BYTES = 64 * 1024
# How long the rest of a body is read after its request was refused, so that the client gets to
# read why.
_LINGER_S = 5.0
_MAX_LINE_BYTES = 8190
_MAX_HEADERS = 128
_TOO_MANY_HEADERS = "Too many headers"
# A request line whose method the parser does not know, as its error quotes it.
_UNKNOWN_METHOD = re.compile(r"b['\"][!#$%&*+.^_|~0-9A-Za-z-]+ /")

log = Log(__name__)


class HttpConnection(RequestHandler):
    """A connection of `server`. `on_lost` is called once when it has ended."""

    __slots__ = ("_on_lost", "_on_proven", "is_proven")

    def __init__(
        self,
        server: web.Server,
        *,
        idle_s: float,
        on_proven: Callable[[str], bool],
        on_lost: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=idle_s,
            access_log=None,  # type: ignore[arg-type]
            lingering_time=_LINGER_S,
            read_bufsize=_READ_BYTES,
        )
        self._on_proven = on_proven
        self._on_lost = on_lost
        self.is_proven = False
        # The library reads 32 requests ahead, each with a head of up to a megabyte.
        self._max_msg_queue_size = _READ_AHEAD
        self._msg_queue_resume_size = _READ_AHEAD // 2
        self._parser = HttpRequestParser(
            self,
            loop,
            _READ_BYTES,
            max_line_size=_MAX_LINE_BYTES,
            max_field_size=_MAX_LINE_BYTES,
            max_headers=_MAX_HEADERS,
            payload_exception=RequestPayloadError,
            auto_decompress=False,
            max_msg_queue_size=_READ_AHEAD,
        )

    @property
    def is_waiting(self) -> bool:
        """Whether the client owes a request: none is being answered and none is waiting."""
        return self._current_request is None and not self._messages

    def prove(self, user: str) -> bool:
        """Note that a request has been authenticated. Returns False when the user has too many."""
        self.is_proven = self._on_proven(user)
        return self.is_proven

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop, after the TLS handshake."""
        # uvloop's transports are none of asyncio's.
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by the event loop, or by the protocol that took the connection over."""
        super().connection_lost(exc)
        self._on_lost()

    def abort(self) -> None:
        """Drop the connection and whatever was not sent."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to what cannot be parsed; the connection is closed after it."""
        if status != 400:
            return super().handle_error(request, status, exc, message)
        log.debug("not an HTTP request", peer=self.peername, reason=message or exc)
        code, phrase = _refusal(exc)
        return web.Response(status=code, text=f"{code} {phrase}")


def _refusal(exc: BaseException | None) -> tuple[int, str]:
    if isinstance(exc, LineTooLong) or _TOO_MANY_HEADERS in str(exc):
        return 431, "Request Header Fields Too Large"
    if isinstance(exc, BadHttpMethod) and _UNKNOWN_METHOD.search(str(exc)):
        return 405, "Method Not Allowed"
    return 400, "Bad Request"


def is_proven(request: web.BaseRequest) -> bool:
    """Whether a request on the same connection has been authenticated before."""
    connection = request.protocol
    return isinstance(connection, HttpConnection) and connection.is_proven


def prove(request: web.BaseRequest, user: str = "") -> bool:
    """Note on a request's connection that it has been authenticated.

    `user` is empty for those whose connections are not limited. Returns False when the user has too
    many: the connection then stays among those that are the first to go.
    """
    connection = request.protocol
    if not isinstance(connection, HttpConnection) or connection.is_proven:
        return True
    return connection.prove(user)
