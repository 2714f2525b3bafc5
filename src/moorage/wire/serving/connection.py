"""HTTP connection: aiohttp's, with bounds on the memory that a client can occupy.

Only a few requests of a pipelining client are read ahead, and the buffer of unread responses is
small. Malformed requests are answered as Go's server does: 431 for a head that is too large, 405
for a method that does not exist, 400 for the rest. All code that depends on the internals of
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

# Requests read ahead while one is being answered.
_READ_AHEAD = 4
_READ_BYTES = 64 * 1024
_WRITE_HIGH_BYTES = 64 * 1024
# Time for which the rest of a body is read after its request was refused, so that the client
# reads the response.
_LINGER_S = 5.0
_MAX_LINE_BYTES = 8190
_MAX_HEADERS = 128
_TOO_MANY_HEADERS = "Too many headers"
# The parser's error for a request line with an unknown method.
_UNKNOWN_METHOD = re.compile(r"b['\"][!#$%&*+.^_|~0-9A-Za-z-]+ /")

AtOnce = Callable[["HttpConnection", bytes], bytes | None]
"""Returns the answer to the bytes of a request, None if it has to be parsed and handled."""

log = Log(__name__)


class HttpConnection(RequestHandler):
    """A connection of `server`. `on_lost` is called once, when it is closed.

    `at_once` is asked first for each GET that arrives while no other is being answered. What it
    answers takes neither the parser nor a task; it must keep the connection open.
    """

    __slots__ = ("_at_once", "_certificate", "_framing", "_on_lost", "_on_proven", "is_proven")

    def __init__(
        self,
        server: web.Server,
        *,
        idle_s: float,
        on_proven: Callable[[str], bool],
        on_lost: Callable[[], None],
        at_once: AtOnce | None = None,
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
        self._at_once = at_once
        self._framing = Framing()
        self.is_proven = False
        self._certificate: bytes | None = b""
        # The default is 32 requests, each with a head of up to a megabyte.
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
        """Return whether the client owes a request: none is being answered and none is queued."""
        return self._current_request is None and not self._messages

    @property
    def whole_request(self) -> bytes | None:
        """Return the bytes of the last request, if it arrived at once and has no body."""
        return self._framing.whole

    @property
    def certificate(self) -> bytes | None:
        """Return the client's certificate in DER, None if it sent none. It never changes."""
        if self._certificate == b"":
            transport = self.transport
            tls = None if transport is None else transport.get_extra_info("ssl_object")
            self._certificate = None if tls is None else tls.getpeercert(binary_form=True)
        return self._certificate

    def prove(self, user: str) -> bool:
        """Mark the connection as proven. Returns False when the user has too many."""
        self.is_proven = self._on_proven(user)
        return self.is_proven

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; the event loop calls this after the TLS handshake."""
        # uvloop's transports are not subclasses of asyncio's.
        cast(asyncio.Transport, transport).set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Answer a request at once where possible, else parse it. Hot path: bench/requests.py."""
        if self._at_once is not None and data:
            if data.startswith(b"GET ") and self._is_idle():
                answer = self._at_once(self, data)
                if answer is not None:
                    cast(asyncio.Transport, self.transport).write(answer)
                    self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
                    return
            self._framing.feed(data)
        super().data_received(data)

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume reading, if it was paused: the library calls this for each body that is read."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def _is_idle(self) -> bool:
        """Return whether the next bytes begin a request, and no answer is due or unread."""
        waiter, transport = self._waiter, self.transport
        return (
            waiter is not None
            and not waiter.done()
            and self._framing.is_between
            and transport is not None
            and not transport.get_write_buffer_size()
        )

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release the connection; called by the event loop, or by a protocol after an upgrade."""
        super().connection_lost(exc)
        self._on_lost()

    def abort(self) -> None:
        """Drop the connection and its unsent data."""
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a malformed request; the connection is closed after it."""
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


def peer_certificate(request: web.BaseRequest) -> bytes | None:
    """Return the client's certificate in DER, None if it sent none."""
    connection = request.protocol
    return connection.certificate if isinstance(connection, HttpConnection) else None


def is_proven(request: web.BaseRequest) -> bool:
    """Return whether an earlier request on the connection has been authenticated."""
    connection = request.protocol
    return isinstance(connection, HttpConnection) and connection.is_proven


def prove(request: web.BaseRequest, user: str = "") -> bool:
    """Mark the connection of an authenticated request as proven.

    `user` is empty for exempt users. Returns False when the user has too many: the connection then
    stays unproven and among the first to be dropped.
    """
    connection = request.protocol
    if not isinstance(connection, HttpConnection) or connection.is_proven:
        return True
    return connection.prove(user)


# Framing of requests: whether the bytes received on a connection end with a whole request.
#
# It reads only what a plain request has: a head with at most one Content-Length. At anything else
# (chunked bodies, upgrades, pipelined requests, odd line ends) it gives up for the rest of the
# connection, so that its answer is never wrong. The parser refuses what is ambiguous, such as two
# lengths, and then the connection ends. Hot path: 1 µs per request (bench/requests.py).
# Source: RFC 9112 §6.

_HEAD_END = b"\r\n\r\n"
_BEGIN = re.compile(rb"[A-Z]+ /")
# Folded lines, and fields (Transfer-Encoding, Upgrade, Expect) after which more than a body of
# known length may follow.
_UNUSUAL = re.compile(rb"\r\n(?:[ \t]|[Tt][Rr][Aa][Nn]|[Uu][Pp]|[Ee][Xx])")
_LENGTH = re.compile(rb"\r\n[Cc][Oo][Nn][Tt][Ee][Nn][Tt]-[Ll]([^\r\n]*)")
_LENGTH_VALUE = re.compile(rb"(?i:ength):[ \t]*([0-9]{1,18})[ \t]*")
_UNKNOWN = -1


class Framing:
    """Follows the requests of one connection.

    `whole`: the last bytes fed, if they are one request without a body; else None.
    """

    __slots__ = ("_left_bytes", "whole")

    def __init__(self) -> None:
        self._left_bytes = 0
        self.whole: bytes | None = None

    @property
    def is_between(self) -> bool:
        """Return whether the bytes fed end with a whole request, so that the next one follows."""
        return self._left_bytes == 0

    def feed(self, data: bytes) -> None:
        """Follow the next bytes of the connection."""
        if not data or self._left_bytes == _UNKNOWN:
            return
        self.whole = None
        if self._left_bytes:
            left = self._left_bytes - len(data)
        else:
            end = data.find(_HEAD_END)
            rest = len(data) - end - len(_HEAD_END)
            # Hot path: a write whose body arrives with its head, as clients spell it.
            if end > 0 and rest and data.find(b"\r\nContent-Length: %d\r\n" % rest, 0, end + 2) > 0:
                return
            length = _body_length(data[: max(end, 0)])
            left = _UNKNOWN if length < 0 else length - rest
            if not left and not length:
                self.whole = data
        self._left_bytes = max(left, _UNKNOWN)


def _body_length(head: bytes) -> int:
    """Return the length of the body that follows a head; -1 if it is unknown."""
    if not _BEGIN.match(head) or _UNUSUAL.search(head) or head.count(b"\n") != head.count(b"\r\n"):
        return _UNKNOWN
    lengths = _LENGTH.findall(head)
    if not lengths:
        return 0
    value = _LENGTH_VALUE.fullmatch(lengths[0])
    return int(value[1]) if value is not None and len(lengths) == 1 else _UNKNOWN
