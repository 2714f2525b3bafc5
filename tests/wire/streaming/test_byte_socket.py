"""Websockets of bytes: their subprotocols, and what a client gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from moorage.wire.streaming.byte_socket import (
    BASE64,
    BINARY,
    PROTOCOLS,
    UNNAMED,
    BrokenStreamError,
    chosen_protocol,
    send_bytes,
)
from tests.wire.streaming.servers import serving

WITHIN_S = 10.0
Pieces = Callable[[], AsyncIterator[bytes]]

_KNOWN = [name for name in PROTOCOLS if name != UNNAMED]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([], UNNAMED),
        (["odd"], None),
        (["odd", _KNOWN[-1], _KNOWN[0]], _KNOWN[-1]),
        (_KNOWN, _KNOWN[0]),
    ],
)
def test_the_first_offered_protocol_that_is_known_is_spoken(
    offered: list[str], chosen: str | None
) -> None:
    assert chosen_protocol(iter(offered)) == chosen


async def _received(
    pieces: Pieces, protocol: str, **options: Any
) -> tuple[list[Any], aiohttp.ClientWebSocketResponse]:
    """The messages that a client gets up to the server's close, and its websocket."""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        return await send_bytes(request, protocol, pieces())

    async with (
        serving(handle) as url,
        aiohttp.ClientSession() as client,
        client.ws_connect(url, protocols=(protocol,) if protocol else (), **options) as websocket,
    ):
        assert websocket.protocol == (protocol or None)
        async with asyncio.timeout(WITHIN_S):
            return [message.data async for message in websocket], websocket


async def _log() -> AsyncIterator[bytes]:
    yield b"one"
    yield b"x" * (70 * 1024)


@pytest.mark.parametrize("protocol", [UNNAMED, BINARY])
async def test_a_stream_comes_in_messages_behind_an_empty_one(protocol: str) -> None:
    messages, websocket = await _received(_log, protocol)
    assert messages[:2] == [b"", b"one"]
    assert b"".join(messages[2:]) == b"x" * (70 * 1024)
    assert max(map(len, messages)) == 32 * 1024
    assert websocket.close_code == aiohttp.WSCloseCode.OK


async def test_base64_messages_are_text() -> None:
    messages, _ = await _received(_log, BASE64)
    assert messages[:2] == ["", "b25l"]


async def test_messages_are_not_compressed() -> None:
    _, websocket = await _received(_log, BINARY, compress=15)
    assert websocket.compress == 0


async def test_a_stream_that_breaks_closes_with_the_reason() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"some"
        raise BrokenStreamError("the node has gone" + "!" * 200)

    messages, websocket = await _received(broken, BINARY)
    assert messages == [b"", b"some"]
    assert websocket.close_code == aiohttp.WSCloseCode.INTERNAL_ERROR


async def test_close_reason_is_cut_between_characters() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"some"
        raise BrokenStreamError("x" * 122 + "ü" * 50)

    messages, websocket = await _received(broken, BINARY)
    assert messages == [b"", b"some"]
    assert websocket.close_code == aiohttp.WSCloseCode.INTERNAL_ERROR


async def test_the_clients_close_ends_the_stream() -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield b"some"
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async def handle(request: web.Request) -> web.WebSocketResponse:
        return await send_bytes(request, BINARY, endless())

    async with (
        serving(handle) as url,
        aiohttp.ClientSession() as client,
        client.ws_connect(url, protocols=(BINARY,)) as websocket,
    ):
        assert await websocket.receive_bytes() == b""
        # What the client sends is ignored.
        await websocket.send_bytes(b"ignored")
        assert await websocket.receive_bytes() == b"some"
        await websocket.close()
        await asyncio.wait_for(ended.wait(), WITHIN_S)


async def test_a_message_of_the_client_does_not_end_the_stream() -> None:
    may_go_on = asyncio.Event()

    async def halting() -> AsyncIterator[bytes]:
        await may_go_on.wait()
        yield b"some"

    async def handle(request: web.Request) -> web.WebSocketResponse:
        return await send_bytes(request, BINARY, halting())

    async with (
        asyncio.timeout(WITHIN_S),
        serving(handle) as url,
        aiohttp.ClientSession() as client,
        client.ws_connect(url, protocols=(BINARY,), autoping=False) as websocket,
    ):
        assert await websocket.receive_bytes() == b""
        await websocket.send_bytes(b"ignored")
        # Its answer shows that the message before it was taken.
        await websocket.ping()
        assert (await websocket.receive()).type is aiohttp.WSMsgType.PONG
        may_go_on.set()
        assert await websocket.receive_bytes() == b"some"
        assert (await websocket.receive()).type is aiohttp.WSMsgType.CLOSE
