"""Answers, and putting them on the connection.

A reply is bytes with a status and a type. Small ones (nearly all) are written in one piece without
the HTTP library's header machinery, which costs more than the answer itself; large ones go its
usual way, compressed when the client asks. Hot path: 10 µs a reply (bench/api.py).
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import msgspec
import yaml
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from moorage.api.errors import StatusError
from moorage.apiserver.negotiation import PLAIN, Form

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

_DIRECT_LIMIT_BYTES = 64 * 1024
_GZIP_FROM_BYTES = 128 * 1024
_GZIP_LEVEL = 1
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(slots=True)
class Reply:
    """An answer. `warnings` become Warning headers; `is_compressible` lets it be gzipped."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    warnings: Iterable[str] = ()
    is_compressible: bool = False


def json_reply(document: Any, status: int = 200) -> Reply:
    """A JSON document, with the final newline that the API sends."""
    return Reply(msgspec.json.encode(document) + b"\n", status)


def text_reply(text: str, status: int = 200) -> Reply:
    return Reply(text.encode(), status, TEXT)


def not_found_page() -> Reply:
    """What paths outside the API get: plain text, not a Status."""
    return text_reply("404 page not found\n", 404)


def error_reply(error: StatusError, form: Form = PLAIN) -> Reply:
    """The Status of a failure."""
    reply = formed(msgspec.json.encode(error.to_object()) + b"\n", form, error.status_code)
    if error.retry_after_seconds is not None:
        reply.headers["Retry-After"] = str(error.retry_after_seconds)
    if error.status_code == 401:
        reply.headers["WWW-Authenticate"] = 'Bearer realm="moorage"'
    return reply


def formed(body: bytes, form: Form, status: int = 200, *, is_compressible: bool = False) -> Reply:
    """A JSON body in the negotiated form."""
    if form.is_yaml:
        text = yaml.dump(msgspec.json.decode(body), Dumper=_Dumper, sort_keys=False)
        return Reply(text.encode(), status, form.content_type, is_compressible=is_compressible)
    return Reply(body, status, JSON, is_compressible=is_compressible)


def prettified(reply: Reply, user_agent: str, *, is_asked: bool) -> Reply:
    """Indented for people at a terminal or browser."""
    if reply.content_type == JSON and (is_asked or user_agent.startswith(_PRETTY_AGENTS)):
        reply.body = msgspec.json.format(reply.body, indent=2)
    return reply


class DirectResponse(web.StreamResponse):
    """A whole response written at once.

    Overrides the two steps in which aiohttp's server sends a response; all else of the connection
    (parsing, keep-alive, limits, shutdown) stays the library's.
    """

    def __init__(self, reply: Reply, audit_id: str) -> None:
        super().__init__(status=reply.status)
        self._reply = reply
        self._audit_id = audit_id

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        # The answer to a HEAD ends with its head: a body would be read as the next answer.
        body = b"" if request.method == "HEAD" else self._reply.body
        transport.write(_head(self._reply, self._audit_id, is_kept=self._keep_alive) + body)
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        del data
        self._eof_sent = True


async def send(request: web.BaseRequest, reply: Reply, audit_id: str) -> web.StreamResponse:
    """The response to return from the server's handler."""
    body = reply.body
    if (
        reply.is_compressible
        and len(body) > _GZIP_FROM_BYTES
        and "gzip" in request.headers.get("Accept-Encoding", "")
    ):
        reply.body = await asyncio.to_thread(_gzipped, body)
        reply.headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    if len(reply.body) <= _DIRECT_LIMIT_BYTES:
        return DirectResponse(reply, audit_id)
    response = web.Response(body=reply.body, status=reply.status)
    for name, value in _headers(reply, audit_id):
        response.headers.add(name, value)
    return response


def _gzipped(body: bytes) -> bytes:
    compressor = zlib.compressobj(_GZIP_LEVEL, wbits=31)
    return compressor.compress(body) + compressor.flush()


_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def _headers(reply: Reply, audit_id: str) -> list[tuple[str, str]]:
    headers = [
        ("Audit-Id", audit_id),
        ("Content-Type", reply.content_type),
    ]
    if "Cache-Control" not in reply.headers:
        headers.append(("Cache-Control", "no-cache, private"))
    headers += reply.headers.items()
    headers += [("Warning", f"299 - {_quoted(each)}") for each in reply.warnings]
    return headers


def _head(reply: Reply, audit_id: str, *, is_kept: bool) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in _headers(reply, audit_id))
    connection = "" if is_kept else "Connection: close\r\n"
    phrase = _PHRASES.get(reply.status, "")
    return (
        f"HTTP/1.1 {reply.status} {phrase}\r\n{lines}Date: {_http_date(int(time.time()))}\r\n"
        f"{connection}Content-Length: {len(reply.body)}\r\n\r\n"
    ).encode("utf-8", "surrogateescape")


def _quoted(text: str) -> str:
    """A warning's text as an HTTP quoted string: no line breaks, quotes escaped."""
    flat = " ".join(text.split()) if ("\n" in text or "\r" in text) else text
    escaped = flat.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _DateCache:
    """The Date header changes once a second; formatting it costs more than that."""

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def __call__(self, second: int) -> str:
        if second != self._second:
            self._second = second
            self._text = formatdate(second, usegmt=True)
        return self._text


_http_date = _DateCache()
