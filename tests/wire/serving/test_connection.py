"""HTTP connections: what cannot be parsed, what is read ahead, who is proven."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from moorage.wire.serving import Limits, prove
from moorage.wire.serving.connection import HttpConnection, is_proven
from tests.wire.serving.test_acceptor import WITHIN_S, Served, serving


async def _status(served: Served, request: bytes) -> bytes:
    """The first line of the answer to bytes; the connection is closed after it."""
    reader, writer = await served.connect()
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), WITHIN_S)
    writer.close()
    return answer.partition(b"\r\n")[0]


_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (_HEAD + b"\r\n", b"200 OK"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/9.9.9\r\n\r\n", b"400 Bad Request"),
        (_HEAD + b"A b\r\n\r\n", b"400 Bad Request"),
        (b"ODD! / HTTP/1.1\r\nHost: x\r\n\r\n", b"405 Method Not Allowed"),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
         b"431 Request Header Fields Too Large"),
        (_HEAD + b"A: " + b"a" * 9000 + b"\r\n\r\n", b"431 Request Header Fields Too Large"),
        (_HEAD + b"".join(b"A%d: b\r\n" % n for n in range(140)) + b"\r\n",
         b"431 Request Header Fields Too Large"),
        (_HEAD + b"".join(b"A%d: b\r\n" % n for n in range(126)) + b"\r\n", b"200 OK"),
        (_HEAD + b"".join(b"A%d: b\r\n" % n for n in range(127)) + b"\r\n",
         b"431 Request Header Fields Too Large"),
        (_HEAD + b"A: " + b"a" * 8000 + b"\r\n\r\n", b"200 OK"),
    ],
)  # fmt: skip
async def test_invalid_requests_are_rejected(request_: bytes, status: bytes) -> None:
    async with serving(Limits()) as served:
        assert (await _status(served, request_)).partition(b" ")[2] == status
        await served.until_open(0)


async def test_compressed_bodies_are_left_as_they_are() -> None:
    seen: list[bytes] = []

    async def read(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(await request.read())
        return web.Response()

    body = b"\x1f\x8bnot gzip"
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Encoding: gzip\r\n"
    async with serving(Limits(), read) as served:
        answer = await _status(served, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert answer == b"HTTP/1.1 200 OK"
    assert seen == [body]


async def test_few_requests_of_a_pipelining_client_are_read_ahead() -> None:
    connections: list[HttpConnection] = []
    release = asyncio.Event()

    async def wait(request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request.protocol, HttpConnection)
        connections.append(request.protocol)
        await release.wait()
        return web.Response()

    async with serving(Limits(), wait) as served:
        reader, writer = await served.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 29 + _HEAD + b"\r\n")
        async with asyncio.timeout(WITHIN_S):
            while not connections or len(connections[0]._messages) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        connection = connections[0]
        assert len(connection._messages) <= 4
        assert not connection.is_waiting
        release.set()
        answers = await asyncio.wait_for(reader.read(), WITHIN_S)
        assert answers.count(b"200 OK") == 30
        writer.close()


async def test_a_connection_is_proven_once() -> None:
    proofs: list[bool] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        proofs.append(is_proven(request))
        proofs.append(prove(request, request.headers["X-User"]))
        return web.Response(text="hello")

    async with serving(Limits(per_user=1), answer) as served:
        one, two = await served.connect(), await served.connect()
        for connection, before, granted in (
            (one, False, True), (one, True, True), (two, False, False), (two, False, False),
        ):  # fmt: skip
            assert await served.ask("X-User: a", connection=connection) == b"HTTP/1.1 200 OK"
            assert (proofs[-2], proofs[-1]) == (before, granted)
        one[1].close()
        two[1].close()


def test_other_connections_are_never_proven_and_never_refused() -> None:
    request: Any = type("Request", (), {"protocol": object()})()
    assert not is_proven(request)
    assert prove(request, "a")


async def test_invalid_request_is_answered_once_with_the_reason() -> None:
    async with serving(Limits()) as served:
        reader, writer = await served.connect()
        writer.write(b"nonsense\r\n\r\n" + _HEAD + b"\r\n")
        answer = await asyncio.wait_for(reader.read(), WITHIN_S)
        assert answer.count(b"HTTP/1.") == 1
        assert answer.endswith(b"\r\n\r\n400 Bad Request")
        writer.close()


async def test_a_handler_that_fails_is_a_500() -> None:
    async def fail(_: web.BaseRequest) -> web.StreamResponse:
        raise RuntimeError("broken")

    async with serving(Limits(), fail) as served:
        assert await _status(served, _HEAD + b"\r\n") == b"HTTP/1.1 500 Internal Server Error"


async def test_an_idle_connection_ends_after_its_time() -> None:
    async with serving(Limits(idle_s=0.01)) as served:
        reader, writer = await served.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Known: yes\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), WITHIN_S)).endswith(b"hello")
        writer.close()


async def test_a_connection_owes_a_request_until_one_is_being_answered() -> None:
    waiting: list[bool] = []
    connections: list[HttpConnection] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request.protocol, HttpConnection)
        connections.append(request.protocol)
        waiting.append(request.protocol.is_waiting)
        return web.Response(text="hello")

    async with serving(Limits(), answer) as served:
        connection = await served.connect()
        await served.ask(connection=connection)
        await served.ask(connection=connection)
        assert waiting == [False, False]
        assert connections[0].is_waiting
        connections[0].abort()
        assert await asyncio.wait_for(connection[0].read(), WITHIN_S) == b""
        await served.until_open(0)
        # Dropping it again does nothing.
        connections[0].abort()
        connection[1].close()


async def test_a_request_is_logged_by_no_one_here(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "aiohttp.access")
    async with serving(Limits()) as served:
        await served.ask()
    assert [record for record in caplog.records if record.name == "aiohttp.access"] == []


async def test_reading_pauses_at_four_requests_and_resumes_at_two() -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    connection = HttpConnection(
        web.Server(answer), idle_s=1.0, on_proven=lambda _: True, on_lost=lambda: None
    )
    assert (connection._max_msg_queue_size, connection._msg_queue_resume_size) == (4, 2)
    # Before it has a transport there is nothing to drop.
    connection.abort()


async def test_a_handler_sees_that_its_connection_is_lost() -> None:
    lost = asyncio.Event()
    connections: list[HttpConnection] = []

    async def wait(request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request.protocol, HttpConnection)
        connections.append(request.protocol)
        assert request.transport is not None
        assert request.transport.get_write_buffer_limits()[1] == 64 * 1024
        while request.transport is not None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)
        lost.set()
        return web.Response()

    async with serving(Limits(), wait) as served:
        _, writer = await served.connect()
        writer.write(_HEAD + b"\r\n")
        async with asyncio.timeout(WITHIN_S):
            while not connections:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.001)
            writer.close()
            await lost.wait()
        await served.until_open(0)
        assert connections[0].transport is None
