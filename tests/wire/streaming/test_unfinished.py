"""Messages that clients begin and do not end: how much of them is kept."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.http_websocket import WSMsgType

from moorage.wire.serving import Budget
from moorage.wire.streaming.byte_socket import UNNAMED, send_bytes
from moorage.wire.streaming.channel_socket import accept, next_message
from moorage.wire.streaming.unfinished import FREE_BYTES, CountingParser, Unfinished
from tests.wire.streaming.servers import serving

WITHIN_S = 20.0
MIB = 1024 * 1024


@asynccontextmanager
async def bounded(unfinished: Unfinished, user: str = "ann") -> AsyncIterator[str]:
    """The URL of a server that answers each message with its size."""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        websocket = await accept(request, "")
        unfinished.bound(request, websocket, user)
        while (message := await next_message(websocket)) is not None:
            await websocket.send_str(str(len(message)))
        return websocket

    async with serving(handle) as url:
        yield url


async def _until(unfinished: Unfinished, held: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while unfinished.held != held:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


def _transport(socket: aiohttp.ClientWebSocketResponse) -> asyncio.Transport:
    connection = socket._response.connection
    assert connection is not None
    assert isinstance(connection.transport, asyncio.Transport)
    return connection.transport


async def _begin(socket: aiohttp.ClientWebSocketResponse, size: int) -> None:
    """Send the beginning of a message in a frame that has more after it."""
    transport = _transport(socket)
    head = bytes((0x02, 0xFF)) + size.to_bytes(8) + bytes(4)
    transport.write(head + bytes(size))


_HEAD_BYTES = 14


async def test_an_unfinished_message_is_counted_until_it_is_whole() -> None:
    unfinished = Unfinished()
    async with (
        bounded(unfinished) as url,
        aiohttp.ClientSession() as client,
        client.ws_connect(url) as socket,
    ):
        await _begin(socket, MIB)
        await _until(unfinished, MIB + _HEAD_BYTES - FREE_BYTES)
        await socket.ping()
        await _begin_continued(socket, MIB)
        await _until_more_than(unfinished, 2 * MIB - FREE_BYTES)
        await _end(socket)
        assert await asyncio.wait_for(socket.receive_str(), WITHIN_S) == str(2 * MIB)
        assert unfinished.held == 0


async def test_a_lost_connection_gives_its_bytes_back() -> None:
    unfinished = Unfinished()
    async with bounded(unfinished) as url, aiohttp.ClientSession() as client:
        async with client.ws_connect(url) as socket:
            await _begin(socket, MIB)
            await _until(unfinished, MIB + _HEAD_BYTES - FREE_BYTES)
            transport = _transport(socket)
            transport.abort()
        await _until(unfinished, 0)


async def test_a_message_without_room_closes_its_websocket_alone() -> None:
    unfinished = Unfinished(total_bytes=4 * MIB, per_user_bytes=2 * MIB)
    async with (
        bounded(unfinished) as url,
        aiohttp.ClientSession() as client,
        client.ws_connect(url) as first,
        client.ws_connect(url) as second,
    ):
        await _begin(first, MIB)
        await _until_more_than(unfinished, MIB - FREE_BYTES)
        # Over the limit with its last bytes: what is not read any more would reset the connection.
        await _begin(second, MIB + 2 * FREE_BYTES)
        message = await asyncio.wait_for(second.receive(), WITHIN_S)
        assert (message.type, message.data) == (
            WSMsgType.CLOSE,
            aiohttp.WSCloseCode.MESSAGE_TOO_BIG,
        )
        await _end(first)
        assert await asyncio.wait_for(first.receive_str(), WITHIN_S) == str(MIB)


async def test_short_messages_need_no_room() -> None:
    unfinished = Unfinished(total_bytes=MIB, per_user_bytes=MIB)
    async with (
        bounded(unfinished) as url,
        aiohttp.ClientSession() as client,
        client.ws_connect(url) as full,
        client.ws_connect(url) as socket,
    ):
        await _begin(full, FREE_BYTES + MIB - _HEAD_BYTES)
        await _until(unfinished, MIB)
        for _ in range(20):
            await socket.send_bytes(bytes(32 * 1024))
            assert await asyncio.wait_for(socket.receive_str(), WITHIN_S) == str(32 * 1024)


async def test_whole_messages_in_a_row_are_not_added_up() -> None:
    unfinished = Unfinished(total_bytes=4 * MIB, per_user_bytes=4 * MIB)
    async with (
        bounded(unfinished) as url,
        aiohttp.ClientSession() as client,
        client.ws_connect(url) as socket,
    ):
        for _ in range(30):
            await socket.send_bytes(bytes(3 * MIB))
            assert await asyncio.wait_for(socket.receive_str(), WITHIN_S) == str(3 * MIB)
        assert unfinished.held == 0


@pytest.mark.parametrize(("size", "is_closed"), [(1024, False), (8 * 1024, True)])
async def test_little_is_kept_of_what_a_log_ignores(size: int, is_closed: bool) -> None:
    more = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        await more.wait()
        yield b"line"

    async def handle(request: web.Request) -> web.WebSocketResponse:
        return await send_bytes(request, UNNAMED, pieces())

    async with (
        serving(handle) as url,
        aiohttp.ClientSession() as client,
        client.ws_connect(url) as socket,
    ):
        assert await socket.receive_bytes() == b""
        await _begin(socket, size)
        if not is_closed:
            more.set()
        message = await asyncio.wait_for(socket.receive(), WITHIN_S)
        more.set()
        expected = aiohttp.WSCloseCode.MESSAGE_TOO_BIG if is_closed else b"line"
        assert message.data == expected


async def _begin_continued(socket: aiohttp.ClientWebSocketResponse, size: int) -> None:
    transport = _transport(socket)
    transport.write(bytes((0x00, 0xFF)) + size.to_bytes(8) + bytes(4) + bytes(size))


async def _end(socket: aiohttp.ClientWebSocketResponse) -> None:
    transport = _transport(socket)
    transport.write(bytes((0x80, 0x80)) + bytes(4))


async def _until_more_than(unfinished: Unfinished, held: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while unfinished.held <= held:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


class FakeParser:
    """A parser that takes everything, and finds no message in it."""

    def __init__(self) -> None:
        self.fed: list[bytes] = []
        self.has_ended = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.fed.append(data)
        return False, b""

    def feed_eof(self) -> None:
        self.has_ended = True


def test_nothing_is_parsed_after_a_message_for_which_there_was_no_room() -> None:
    errors: list[Exception] = []
    queue = SimpleNamespace(_buffer=deque(), set_exception=errors.append)
    websocket: Any = SimpleNamespace(_reader=queue)
    budget = Budget(total=10, per_user=10)
    assert budget.take("bob", 1)
    parser = FakeParser()
    counting = CountingParser(parser, websocket, budget, "ann")
    assert counting.feed_data(bytes(FREE_BYTES)) == (False, b"")
    assert budget.held == 1
    # The first byte that is not free is counted.
    assert counting.feed_data(b"x") == (False, b"")
    assert budget.held == 2
    for _ in range(2):
        assert counting.feed_data(bytes(10)) == (True, b"")
    assert parser.fed == [bytes(FREE_BYTES), b"x", bytes(10)]
    (error,) = errors
    assert isinstance(error, aiohttp.WebSocketError)
    assert error.code == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
    counting.feed_eof()
    assert parser.has_ended
    assert budget.held == 1
