"""Asking a server for an upgrade: the kubelet's endpoint, an engine's streaming address.

    async with dial(upstream, "POST", SPDY, lines) as answer:   # Upgraded or Refused

The HTTP client library is not used: it owns its connections, and an upgraded one must be ours from
the first byte after the answer's head. Leaving the block closes the connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from yarl import URL

from moorage.api.errors import StatusError
from moorage.streaming.connection import Connection
from moorage.streaming.deadlines import Deadlines
from moorage.streaming.upgrade import (
    AnswerHead,
    HeadError,
    Headers,
    parse_answer_head,
    request_head,
)

_HEAD_LIMIT_BYTES = 64 * 1024
_BODY_LIMIT_BYTES = 64 * 1024
_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_HEX_DIGITS = frozenset(b"0123456789abcdefABCDEF")
_WITHOUT_BODY = frozenset({204, 304})
_LENGTH_DIGITS = 12
_PORTS = {"http": 80, "https": 443}


class DialError(StatusError):
    """The upstream could not be reached, or did not answer as an HTTP server does.

    Status 500 without a reason, as the Kubernetes API answers it.
    """

    @classmethod
    def of(cls, upstream: Upstream, why: object) -> DialError:
        return cls(f"error dialing backend: {upstream.place}: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A server's address for one upgrade.

    `url` is `http://` or `https://`, path and query included, already escaped. `ssl` decides how
    the server proves itself and with which certificate we do; `server_name` replaces the URL's
    host in that proof. With `socket` the connection is made to that Unix socket. `headers` go with
    the request (a bearer token).
    """

    url: str
    headers: Headers = field(default_factory=dict)
    ssl: ssl.SSLContext | None = None
    server_name: str = ""
    socket: Path | None = None

    @property
    def place(self) -> str:
        """Where it is, for messages: no path, which may hold a token."""
        if self.socket is not None:
            return str(self.socket)
        try:
            return URL(self.url, encoded=True).authority
        except ValueError:
            return "an address that is no URL"


@dataclass(frozen=True, slots=True)
class Upgraded:
    """A 101 answer and the byte stream behind it."""

    head: AnswerHead
    connection: Connection


@dataclass(frozen=True, slots=True)
class Refused:
    """Any other answer, with the beginning of its body (64 KiB)."""

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
    """Connect, ask for the upgrade, and yield the answer. Raises DialError."""
    limits = deadlines or Deadlines()
    try:
        async with asyncio.timeout(limits.dial_s):
            connection = await _connect(upstream)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise DialError.of(upstream, str(error) or "timed out") from error
    async with connection:
        try:
            async with asyncio.timeout(limits.dial_s):
                answer = await _ask(connection, upstream, method, protocol, lines)
        except (OSError, ValueError) as error:
            raise DialError.of(upstream, str(error) or "timed out") from error
        yield answer


async def _connect(upstream: Upstream) -> Connection:
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
    url = URL(upstream.url, encoded=True)
    own = tuple(upstream.headers.items())
    await connection.write(
        request_head(method, url.raw_path_qs, url.authority, protocol, (*own, *lines))
    )
    head = parse_answer_head(await _read_head(connection))
    if head.status == 101:
        return Upgraded(head, connection)
    return Refused(head, await _read_body(connection, head))


async def _read_head(connection: Connection) -> bytes:
    text = b""
    while (end := text.find(_HEAD_END)) < 0:
        if len(text) > _HEAD_LIMIT_BYTES:
            raise HeadError("the answer's head is larger than 64 KiB")
        data = await connection.read()
        if not data:
            raise HeadError("the server closed the connection without an answer")
        text += data
    connection.unread(text[end + len(_HEAD_END) :])
    return text[:end]


async def _read_body(connection: Connection, head: AnswerHead) -> bytes:
    """The beginning of a refusal's body, for the message; never waits for more than it needs."""
    is_chunked = "chunked" in head.headers.get("Transfer-Encoding", "").lower()
    length = head.headers.get("Content-Length", "")
    wanted = _BODY_LIMIT_BYTES
    if head.status in _WITHOUT_BODY:
        wanted = 0
    elif length.isascii() and length.isdigit():
        wanted = min(int(length[:_LENGTH_DIGITS]), _BODY_LIMIT_BYTES)
    body = b""
    while len(body) < wanted and not (is_chunked and body.endswith(_LAST_CHUNK)):
        data = await connection.read()
        if not data:
            break
        body += data
    return _dechunked(body) if is_chunked else body[:wanted]


def _dechunked(body: bytes) -> bytes:
    """The chunks' contents, as far as they are whole."""
    content = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        digits = size.partition(b";")[0].strip()
        if not digits or not set(digits) <= _HEX_DIGITS or not (length := int(digits, 16)):
            break
        content += rest[:length]
        body = rest[length + 2 :]
    return content
