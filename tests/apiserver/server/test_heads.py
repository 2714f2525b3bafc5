"""Odd methods and odd headers: an answer of the right kind, never a 500."""

from __future__ import annotations

import asyncio
import os
import random
import string
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.apiserver.running_server import Running, serving

ADMIN = b"Authorization: Bearer admin-token\r\nHost: x\r\n"
ALICE = b"Authorization: Bearer alice-token\r\nHost: x\r\n"
PODS = "/api/v1/namespaces/default/pods"
PATHS = (
    "/", "/api", "/apis", "/apis/node.k8s.io/v1", "/openapi/v2", "/openapi/v3", "/version",
    "/readyz", "/nope", "/api/v1/pods", PODS, f"{PODS}/p", f"{PODS}/p/status", f"{PODS}/p/exec",
    f"{PODS}/p/log", f"{PODS}?watch=1",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "*",
)  # fmt: skip
METHODS = (
    "TRACE", "CONNECT", "OPTIONS", "PROPFIND", "M-SEARCH", "LINK", "PURGE", "TRACK", "FOO", "get",
)  # fmt: skip
IS_SOAK = bool(os.environ.get("MOORAGE_FUZZ"))
WITHIN_S = 20.0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path) as running:
        yield running


async def _status(server: Running, wire: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=server.tls())
    try:
        writer.write(wire)
        line = await asyncio.wait_for(reader.readline(), WITHIN_S)
    finally:
        writer.transport.abort()
    return int(line.split()[1])


@pytest.mark.parametrize("method", METHODS)
async def test_a_method_that_resources_do_not_have_is_a_405(server: Running, method: str) -> None:
    for path in (PODS, f"{PODS}/p", f"{PODS}/p/status", f"{PODS}?watch=1"):
        assert (
            await _status(server, f"{method} {path} HTTP/1.1\r\n".encode() + ADMIN + b"\r\n") == 405
        )


@pytest.mark.parametrize("who", [ADMIN, ALICE, b"Host: x\r\n"])
async def test_no_method_makes_a_path_fail(server: Running, who: bytes) -> None:
    for method in METHODS:
        for path in PATHS:
            status = await _status(server, f"{method} {path} HTTP/1.1\r\n".encode() + who + b"\r\n")
            assert 200 <= status < 500, (method, path)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"X: " + b"a" * 9000, 431),
        (b"x" * 9000 + b": 1", 431),
        (b"\r\n".join(b"X%d: a" % number for number in range(200)), 431),
        (b"\r\n".join(b"X%d: %b" % (number, b"a" * 8000) for number in range(140)), 431),
        (b"X: a\0b", 400),
        (b"X: a\rb", 400),
        (b"X: a\r\n b", 400),
        (b": x", 400),
        (b"X : a", 400),
        (b"Host: y", 400),
        (b"Transfer-Encoding: foo", 400),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 3", 400),
        (b"Content-Length: 3\r\nContent-Length: 4", 400),
        (b"Content-Length: -1", 400),
        (b"Content-Length: 99999999999999999999999", 400),
        (b"User-Agent: \xff\xfe", 200),
        (b"User-Agent: \xed\xa0\x80", 200),
        (b"User-Agent: " + b"a" * 8000, 200),
        (b"User-Agent: ////", 200),
        (b"User-Agent:", 200),
        (b"Accept: ;;;,,,", 406),
        (b"Expect: nope", 200),
        (b"Content-Encoding: gzip", 200),
    ],
)
async def test_odd_headers(server: Running, lines: bytes, status: int) -> None:
    wire = b"GET /api/v1/pods HTTP/1.1\r\n" + ADMIN + lines + b"\r\n\r\n"
    assert await _status(server, wire) == status
    if b"Length" in lines or b"Transfer" in lines:
        return
    body = b'{"metadata":{"name":"odd"}}'
    extra = b"\r\nContent-Length: %d\r\n\r\n" % len(body)
    wire = b"POST /api/v1/namespaces HTTP/1.1\r\n" + ADMIN + lines + extra + body
    posted = await _status(server, wire)
    assert posted == {200: 201}.get(status, status) or (b"gzip" in lines and posted == 415)


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/3.0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"G\xffT / HTTP/1.1\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
    ],
)
async def test_invalid_request_lines_are_rejected(
    server: Running, wire: bytes, status: int
) -> None:
    assert await _status(server, wire) == status


_NAMES = (
    "Accept", "Accept-Encoding", "User-Agent", "Content-Type", "Connection", "Upgrade", "Cookie",
    "Impersonate-User", "Impersonate-Group", "Impersonate-Extra-x", "If-Match", "Range",
    "Content-Encoding", "Sec-WebSocket-Protocol", "X-Stream-Protocol-Version", "TE", "Via",
)  # fmt: skip


async def test_random_headers_never_fail(server: Running) -> None:
    seed = random.randrange(1 << 30) if IS_SOAK else 8
    draw = random.Random(seed)
    alphabet = (string.printable.replace("\r", "").replace("\n", "") + "\x7f").encode()
    for _ in range(3000 if IS_SOAK else 100):
        lines = b"".join(
            b"%b: %b\r\n" % (
                draw.choice(_NAMES).encode(),
                bytes(draw.choices(alphabet + bytes(range(128, 256)), k=draw.randrange(60))),
            )
            for _ in range(draw.randrange(1, 6))
        )  # fmt: skip
        path = draw.choice(PATHS[:-1]).split("?")[0].encode()
        status = await _status(server, b"GET " + path + b" HTTP/1.1\r\n" + ADMIN + lines + b"\r\n")
        assert status < 500, (seed, path, lines)
