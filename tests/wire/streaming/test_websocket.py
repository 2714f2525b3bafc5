"""The port-forward tunnel, and connections taken away from the HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from moorage.wire.streaming.channel_socket import TUNNEL, Tunnel, accept, make_websocket
from moorage.wire.streaming.connection import Connection, Deadlines
from moorage.wire.streaming.dial import Upgraded, Upstream, dial
from moorage.wire.streaming.pipe import join
from moorage.wire.streaming.upgrade import SPDY, HandledResponse, take_over
from tests.clocks import settle
from tests.wire.streaming.pairs import connected, read_all, read_exactly
from tests.wire.streaming.servers import serving


@asynccontextmanager
async def tunnelled() -> AsyncIterator[tuple[aiohttp.ClientWebSocketResponse, Connection]]:
    """A tunnel's client, and what it is joined to."""
    async with connected() as (ours, theirs):

        async def handle(request: web.Request) -> web.WebSocketResponse:
            websocket = await accept(request, TUNNEL)
            async with ours:
                await join(Tunnel(websocket), ours, Deadlines())
            await websocket.close()
            return websocket

        async with (
            serving(handle) as url,
            aiohttp.ClientSession() as client,
            client.ws_connect(url, protocols=[TUNNEL]) as websocket,
        ):
            assert websocket.protocol == TUNNEL
            yield websocket, theirs


async def test_messages_are_one_byte_stream() -> None:
    async with tunnelled() as (websocket, upstream):
        for part in (b"abc", b"", b"def"):
            await websocket.send_bytes(part)
        assert await read_exactly(upstream, 6) == b"abcdef"
        await upstream.write(b"back")
        assert await websocket.receive_bytes() == b"back"


async def test_much_comes_in_messages_of_modest_size() -> None:
    payload = bytes(range(256)) * 4096
    async with tunnelled() as (websocket, upstream):
        writing = asyncio.create_task(upstream.write(payload))
        received = b""
        while len(received) < len(payload):
            message = await websocket.receive_bytes()
            assert len(message) <= 33 * 1024
            received += message
        assert received == payload
        await writing


async def test_the_upstreams_end_closes_the_websocket() -> None:
    async with tunnelled() as (websocket, upstream):
        await upstream.write(b"bye")
        await upstream.write_eof()
        assert await websocket.receive_bytes() == b"bye"
        message = await websocket.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE


async def test_the_clients_close_reaches_the_upstream() -> None:
    async with tunnelled() as (websocket, upstream):
        await websocket.send_bytes(b"bye")
        closing = asyncio.create_task(websocket.close())
        assert await read_all(upstream) == b"bye"
        await upstream.write_eof()
        await closing


async def test_a_request_becomes_a_connection() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        connection = await take_over(request, SPDY, [("X-Stream-Protocol-Version", "v4")])
        async with connection:
            await connection.write(b"early")
            await connection.write((await read_exactly(connection, 4)).upper())
        return HandledResponse()

    async with serving(handle) as url:
        upstream = Upstream(url=url)
        async with dial(upstream, "POST", SPDY) as answer:
            assert isinstance(answer, Upgraded)
            assert answer.head.headers["Upgrade"] == SPDY
            assert answer.head.headers["X-Stream-Protocol-Version"] == "v4"
            await answer.connection.write(b"echo")
            assert await read_all(answer.connection) == b"earlyECHO"


async def test_what_is_handled_has_nothing_to_send() -> None:
    response = HandledResponse()
    stand_in: Any = None
    assert response.status == 101
    assert response.keep_alive is False
    assert await response.prepare(stand_in) is None
    await response.write_eof(b"x")


async def test_disconnected_client_is_an_error() -> None:
    failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def handle(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        await asyncio.sleep(0.02)
        try:
            await take_over(request, SPDY, [])
        except ConnectionResetError as error:
            failure.set_result(error)
        return HandledResponse()

    async with serving(handle) as url, aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientError):
            await client.post(url)
        assert isinstance(await asyncio.wait_for(failure, 5), ConnectionResetError)


async def test_connections_taken_away_leave_nothing_with_the_http_server() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        async with await take_over(request, SPDY, ()) as connection:
            assert await connection.read() == b"bye"
        return HandledResponse()

    application = web.Application()
    application.router.add_get("/", handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        for _ in range(3):
            async with dial(Upstream(url=url), "GET", SPDY) as answer:
                assert isinstance(answer, Upgraded)
                await answer.connection.write(b"bye")
                assert await answer.connection.read() == b""
        await settle()
        assert runner.server is not None
        assert runner.server.connections == []
    finally:
        await runner.cleanup()


def test_a_websocket_has_its_subprotocol_and_its_limits() -> None:
    named, unnamed = make_websocket(TUNNEL), make_websocket("", 3.0, largest_bytes=7)
    assert [tuple(websocket._protocols) for websocket in (named, unnamed)] == [(TUNNEL,), ()]
    assert (named._max_msg_size, named._timeout) == (32 * 1024 * 1024, 5.0)
    assert (unnamed._max_msg_size, unnamed._timeout) == (7, 3.0)
    assert not named._compress
