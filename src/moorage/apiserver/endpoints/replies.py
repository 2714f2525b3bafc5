"""HTTP replies and how they are written to the connection.

A reply is bytes with a status and a type. It is written without the HTTP library's header
machinery, which costs more than most replies: small ones (nearly all) in one write, large ones in
pieces, compressed when the client accepts gzip. A long list is encoded and compressed while it is
sent, so that it occupies the memory of one piece. Hot path: 10 µs per reply (bench/api.py).
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from email.utils import formatdate
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from moorage.api import yaml_text
from moorage.api.errors import StatusError, TooManyRequestsError
from moorage.apiserver.endpoints.negotiation import PLAIN, Representation, accepts_gzip
from moorage.apiserver.registry.codec import Media
from moorage.wire.serving import Budget

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"

_PIECE_BYTES = 64 * 1024
# Short pieces are copied up to this, and written with the next one.
_SHORT_BYTES = 2048
# Other requests run after pieces that took as long.
_TURN_S = 0.001
GZIP_FROM_BYTES = 128 * 1024
"""Longer bodies are compressed if the client accepts it."""
_GZIP_LEVEL = 1


class ReplyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on clients that read slowly.

    `patience_s` is the longest time in which one may read nothing, `slowest_bytes_s` its minimum
    average rate for a large reply. `waiting_bytes` bounds large replies that are not read yet,
    `waiting_bytes_per_user` those of one user.
    """

    patience_s: float = 30.0
    slowest_bytes_s: float = 32 * 1024
    waiting_bytes: int = 256 * 1024 * 1024
    waiting_bytes_per_user: int = 64 * 1024 * 1024


LIMITS = ReplyLimits()


class LongBody(Protocol):
    """A body that is made while it is sent, once. `held_bytes`: the memory it holds until then."""

    @property
    def held_bytes(self) -> int: ...

    def pieces(self, *, is_indented: bool) -> Iterator[bytes]:
        """Yield the body. `is_indented`: as indented JSON, where it is JSON."""


class Reply(msgspec.Struct):
    """A response. `warnings` become Warning headers; `is_compressible` lets it be gzipped.

    `is_final`: the bytes are encoded already, or hashed into an ETag, and are sent unchanged.
    `message_type`: the body is JSON, to be sent as a protobuf message of that type.
    `long`: a long body in place of `body`, made while it is sent.
    """

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    warnings: Iterable[str] = ()
    is_compressible: bool = False
    is_final: bool = False
    message_type: str = ""
    long: LongBody | None = None
    is_indented: bool = False


def json_reply(document: Any, status: int = 200) -> Reply:
    """Return a JSON document as a reply, with the final newline that the API sends."""
    return Reply(msgspec.json.encode(document) + b"\n", status)


def text_reply(text: str, status: int = 200) -> Reply:
    return Reply(text.encode(), status, TEXT)


def not_found_page() -> Reply:
    """Return the 404 of paths outside the API: plain text, not a Status."""
    return text_reply("404 page not found\n", 404)


def success(code: int, form: Representation, warnings: list[str] | None = None) -> Reply:
    """Return the Status of a request that succeeded, with warnings for its headers."""
    status = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code,
    }  # fmt: skip
    return document_reply(status, form, code, type_name=STATUS, warnings=warnings)


def document_reply(
    document: Mapping[str, Any],
    form: Representation,
    status: int = 200,
    *,
    type_name: str,
    warnings: list[str] | None = None,
) -> Reply:
    """Return a document in the negotiated form. `type_name`: the type of its protobuf message."""
    reply = formed(msgspec.json.encode(document) + b"\n", form, status, type_name=type_name)
    reply.warnings = warnings or []
    return reply


def error_reply(error: StatusError, form: Representation = PLAIN) -> Reply:
    """Return the Status of an error as a reply."""
    reply = document_reply(error.to_object(), form, error.status_code, type_name=STATUS)
    if error.retry_after_seconds is not None:
        reply.headers["Retry-After"] = str(error.retry_after_seconds)
    if error.status_code == 401:
        reply.headers["WWW-Authenticate"] = 'Bearer realm="moorage"'
    return reply


def formed(body: bytes, form: Representation, status: int = 200, *, type_name: str = "") -> Reply:
    """Return a JSON body in the negotiated form.

    A document for which protobuf was negotiated becomes a message of `type_name` when it is sent.
    """
    reply = Reply(body, status, form.content_type, is_compressible=True)
    reply.is_indented = form.is_indented
    if form.media is Media.YAML:
        reply.body = yaml_text.dump(msgspec.json.decode(body)).encode()
    elif form.media is Media.PROTOBUF:
        reply.message_type = type_name
    return reply


def as_message(reply: Reply, encode: Callable[[str, Any], bytes]) -> Reply:
    """Replace the JSON of a document by its protobuf, where that was negotiated.

    `encode` returns the enveloped message of a type.
    """
    if reply.message_type:
        reply.body = encode(reply.message_type, msgspec.json.decode(reply.body))
        reply.message_type = ""
    return reply


def prettified(reply: Reply, *, is_wanted: bool) -> Reply:
    """Indent the JSON, if that is wanted or was negotiated."""
    if (is_wanted or reply.is_indented) and reply.content_type == JSON and not reply.is_final:
        reply.is_indented = True
        if reply.body:
            reply.body = msgspec.json.format(reply.body, indent=2)
    return reply


class DirectResponse(web.StreamResponse):
    """A complete response, written without the HTTP library's header machinery.

    Overrides the two steps in which aiohttp's server sends a response; the rest of the connection
    (parsing, keep-alive, limits, shutdown) is the library's. A client that does not read blocks its
    own connection only and is disconnected after a timeout.
    """

    def __init__(
        self,
        reply: Reply,
        audit_id: str,
        done: Callable[[], None] | None = None,
        *,
        lines: str = "",
        is_compressed: bool = False,
        limits: ReplyLimits = LIMITS,
    ) -> None:
        """`lines` are more lines of the head, each with its end."""
        super().__init__(status=reply.status)
        self._reply = reply
        self._lines = f"Audit-Id: {audit_id}\r\n{lines}"
        self._done = done
        self._is_compressed = is_compressed
        self._limits = limits

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        try:
            await self._send(request)
        finally:
            if self._done is not None:
                self._done()
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        del data
        self._eof_sent = True

    async def _send(self, request: web.BaseRequest) -> None:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        reply = self._reply
        if reply.long is not None or len(reply.body) > _PIECE_BYTES:
            await self._send_long(request, transport)
            return
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        # A HEAD response has no body: the client would read it as the next response.
        body = b"" if request.method == "HEAD" else reply.body
        transport.write(_head(reply, self._lines, is_kept=self._keep_alive) + body)
        if request.protocol.writing_paused:
            await _drained(request, self._limits.patience_s)

    async def _send_long(self, request: web.BaseRequest, transport: asyncio.Transport) -> None:
        """Write a long body in pieces, each once the client has read the previous one."""
        reply = self._reply
        is_sized = reply.long is None and not self._is_compressed
        # Without a length, a client of HTTP/1.0 reads until the end of the connection.
        is_chunked = not is_sized and request.version >= HttpVersion11
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive and (is_sized or is_chunked)
        framing = f"Content-Length: {len(reply.body)}\r\n" if is_sized else ""
        if is_chunked:
            framing = "Transfer-Encoding: chunked\r\n"
        head = _head(reply, self._lines, is_kept=bool(self._keep_alive), framing=framing)
        if request.method == "HEAD":
            transport.write(head)
            return
        pacer = _Pacer(request, self._limits)
        pieces = _compressed(_pieces(reply)) if self._is_compressed else _each(_pieces(reply))
        # Written with the next long piece: the head, the frames of chunks, and short pieces.
        before = head
        async for piece in pieces:
            if is_chunked:
                before += b"%x\r\n" % len(piece)
            if len(before) + len(piece) <= _SHORT_BYTES:
                before += piece
            else:
                await pacer.write(before, piece)
                before = b""
            if is_chunked:
                before += b"\r\n"
        if is_chunked:
            before += b"0\r\n\r\n"
        if before:
            await pacer.write(before)


class _Pacer:
    """Writes to a client as fast as it reads, and ends the connection of one that is too slow."""

    def __init__(self, request: web.BaseRequest, limits: ReplyLimits) -> None:
        self._request = request
        self._slowest_bytes_s = limits.slowest_bytes_s
        self._loop = asyncio.get_running_loop()
        self._turn_began_s = self._loop.time()
        self._deadline = self._turn_began_s + limits.patience_s

    async def write(self, *parts: bytes | memoryview) -> None:
        """Write parts without a copy; let other requests run. Raises ConnectionResetError."""
        request = self._request
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        if len(parts[0]):
            transport.writelines(parts)
        else:
            transport.write(parts[-1])
        self._deadline += sum(map(len, parts)) / self._slowest_bytes_s
        now_s = self._loop.time()
        if request.protocol.writing_paused:
            await _drained(request, self._deadline - now_s)
        elif now_s - self._turn_began_s < _TURN_S:
            return
        else:
            await asyncio.sleep(0)
        self._turn_began_s = self._loop.time()


def _pieces(reply: Reply) -> Iterator[bytes | memoryview]:
    """Yield a body in pieces of 64 KiB at most."""
    if reply.long is None:
        yield from _slices(reply.body)
        return
    for piece in reply.long.pieces(is_indented=reply.is_indented):
        if len(piece) <= 2 * _PIECE_BYTES:
            yield piece
        else:
            yield from _slices(piece)


def _slices(body: bytes) -> Iterator[memoryview]:
    view = memoryview(body)
    for start in range(0, len(view), _PIECE_BYTES):
        yield view[start : start + _PIECE_BYTES]


async def _each(pieces: Iterator[bytes | memoryview]) -> AsyncIterator[bytes | memoryview]:
    for piece in pieces:
        yield piece


async def _compressed(pieces: Iterator[bytes | memoryview]) -> AsyncIterator[bytes]:
    """Compress pieces, each in a thread."""
    compressor = zlib.compressobj(_GZIP_LEVEL, wbits=31)
    for piece in pieces:
        packed = await asyncio.to_thread(compressor.compress, piece)
        if packed:
            yield packed
    yield await asyncio.to_thread(compressor.flush)


async def _drained(request: web.BaseRequest, within_s: float) -> None:
    """Wait until the client has read what was written. Raises ConnectionResetError."""
    transport = request.transport
    try:
        async with asyncio.timeout(within_s):
            await request.writer.drain()
    except TimeoutError as error:
        if transport is not None:
            transport.abort()
        raise ConnectionResetError("the client does not read its answer") from error


class Sender:
    """Creates the responses of one server and bounds the bytes buffered for slow clients."""

    def __init__(self, limits: ReplyLimits = LIMITS, budget: Budget | None = None) -> None:
        self._limits = limits
        self._budget = budget or Budget(
            total=limits.waiting_bytes, per_user=limits.waiting_bytes_per_user
        )

    def response(
        self,
        request: web.BaseRequest,
        reply: Reply,
        audit_id: str,
        share: str,
        lines: str = "",
    ) -> web.StreamResponse:
        """Return the response to return from the server's handler.

        `share` is the user key that large replies count against, "" for exempt users;
        `lines` are more lines of the head. Returns 429
        when too many bytes are buffered for that user already.
        """
        size = len(reply.body) if reply.long is None else reply.long.held_bytes
        if reply.long is None and size <= _PIECE_BYTES:
            return DirectResponse(reply, audit_id, lines=lines, limits=self._limits)
        if not self._budget.take(share, size):
            return DirectResponse(overloaded(), audit_id, lines=lines, limits=self._limits)
        done = partial(self._budget.give_back, share, size)
        is_compressed = (
            reply.is_compressible
            and (reply.long is not None or size > GZIP_FROM_BYTES)
            and accepts_gzip(request.headers.get("Accept-Encoding", ""))
        )
        if is_compressed:
            reply.headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return DirectResponse(
            reply, audit_id, done, lines=lines, is_compressed=is_compressed, limits=self._limits
        )


def overloaded() -> Reply:
    """Return the 429 for a request over the limits. Source: `tooManyRequests`."""
    reply = text_reply("Too many requests, please try again later.\n", TooManyRequestsError.code)
    reply.headers["Retry-After"] = "1"
    return reply


def whole_answer(reply: Reply, audit_id: str, lines: str) -> bytes:
    """Return a short reply, head and body, for a connection that stays open."""
    return _head(reply, f"Audit-Id: {audit_id}\r\n{lines}", is_kept=True) + reply.body


_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_WITHOUT_CONTENT = frozenset({204, 304})


_CACHE_CONTROL = "Cache-Control: no-cache, private\r\n"


def _head(reply: Reply, lines: str, *, is_kept: bool, framing: str | None = None) -> bytes:
    """Return the head. `framing` replaces the Content-Length of a reply's body."""
    status, headers = reply.status, reply.headers
    extra = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if reply.warnings:
        extra += "".join([f"Warning: 299 - {_quoted(text)}\r\n" for text in reply.warnings])
    cache_control = "" if "Cache-Control" in headers else _CACHE_CONTROL
    connection = "" if is_kept else "Connection: close\r\n"
    # Source: RFC 9110, section 8.6: no length where no content can follow.
    if framing is None:
        is_empty = status in _WITHOUT_CONTENT
        framing = "" if is_empty else f"Content-Length: {len(reply.body)}\r\n"
    return (
        f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n"
        f"{lines}Content-Type: {reply.content_type}\r\n"
        f"{cache_control}{extra}Date: {_http_date(int(time.time()))}\r\n{connection}{framing}\r\n"
    ).encode("utf-8", "surrogateescape")


def _quoted(text: str) -> str:
    """Return a warning as an HTTP quoted string: no line breaks, quotes escaped."""
    flat = " ".join(text.split()) if ("\n" in text or "\r" in text) else text
    escaped = flat.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _DateCache:
    """Caches the Date header, which changes once a second, to save its formatting."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def __call__(self, second: int) -> str:
        if second != self._second:
            self._second = second
            self._text = formatdate(second, usegmt=True)
        return self._text


_http_date = _DateCache()
