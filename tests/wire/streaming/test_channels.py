"""A websocket client of version 5 and an SPDY server, joined by the bridge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from moorage.wire.streaming import channel_socket as channels
from moorage.wire.streaming.channel_socket import accept
from moorage.wire.streaming.connection import Deadlines, IdleTimer
from moorage.wire.streaming.spdy import SpdySession
from tests.clocks import FakeClock, settle
from tests.wire.streaming.pairs import connected
from tests.wire.streaming.servers import serving
from tests.wire.streaming.spdy.peer import FakeSpdyPeer

SUCCESS = b'{"metadata":{},"status":"Success"}'
FAILURE = (
    b'{"metadata":{},"status":"Failure","reason":"NonZeroExitCode","details":{"causes":'
    b'[{"reason":"ExitCode","message":"7"}]}}'
)


class Bridged:
    """websocket ⇄ (the bridge) ⇄ peer."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse, peer: FakeSpdyPeer,
                 streams: dict[str, int], ended: asyncio.Future[None]) -> None:  # fmt: skip
        self.websocket = websocket
        self.peer = peer
        self.streams = streams
        self.ended = ended

    async def send(self, channel: int, data: bytes) -> None:
        await self.websocket.send_bytes(bytes((channel,)) + data)

    async def close(self, channel: int) -> None:
        await self.websocket.send_bytes(bytes((255, channel)))

    async def message(self) -> bytes:
        return await self.websocket.receive_bytes(timeout=5)

    async def rest(self) -> dict[int, bytes]:
        """What comes on each channel until the websocket closes."""
        result: dict[int, bytes] = {}
        async for message in self.websocket:
            channel = message.data[0]
            result[channel] = result.get(channel, b"") + message.data[1:]
        return result


QUERY = {"stdin": "true", "stdout": "true", "stderr": "true"}


@asynccontextmanager
async def bridged(query: dict[str, str] | None = None, **limits: float) -> AsyncIterator[Bridged]:
    asked = QUERY if query is None else query
    wanted = channels.wanted_channels(asked)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with connected() as (ours, theirs):
        peer = FakeSpdyPeer(theirs)

        async def handle(request: web.Request) -> web.WebSocketResponse:
            session = SpdySession(ours)
            streams = await channels.open_streams(session, wanted)
            websocket = await accept(request, channels.V5)
            try:
                await channels.bridge(websocket, session, streams, Deadlines(**limits))
                assert websocket.closed
                ended.set_result(None)
            except OSError as error:
                ended.set_exception(error)
            return websocket

        async with serving(handle) as url, aiohttp.ClientSession() as client:
            agreeing = asyncio.create_task(peer.agree_to_all(len(wanted)))
            websocket = await client.ws_connect(url, protocols=[channels.V5])
            assert websocket.protocol == channels.V5
            yield Bridged(websocket, peer, await agreeing, ended)
            ours.abort()
            await websocket.close()
            await asyncio.wait([ended], timeout=5)
            if ended.done():
                ended.exception()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, "error"),
        ({"stdin": "true", "stdout": "true", "stderr": "true"}, "error stdin stdout stderr"),
        ({"stdin": "1", "stdout": "1", "tty": "1", "stderr": "1"}, "error stdin stdout resize"),
        ({"stdin": "True", "stdout": "", "stderr": "False", "tty": "0"}, "error stdin stdout"),
    ],
)
def test_the_query_says_which_channels(query: dict[str, str], names: str) -> None:
    by_number = {0: "stdin", 1: "stdout", 2: "stderr", 3: "error", 4: "resize"}
    assert [by_number[channel] for channel in channels.wanted_channels(query)] == names.split()


async def test_every_channel_is_a_stream() -> None:
    async with bridged() as ends:
        assert set(ends.streams) == {"error", "stdin", "stdout", "stderr"}


async def test_output_comes_on_its_channel_and_the_status_last() -> None:
    async with bridged() as ends:
        await ends.peer.send(ends.streams["stdout"], b"out")
        await ends.peer.send(ends.streams["stderr"], b"err")
        assert await ends.message() == b"\x01out"
        assert await ends.message() == b"\x02err"
        await ends.peer.send(ends.streams["error"], FAILURE, is_last=True)
        for name in ("stdout", "stderr"):
            await ends.peer.send(ends.streams[name], b"", is_last=True)
        assert await ends.rest() == {3: FAILURE}
        assert ends.websocket.close_code == 1000
        await ends.ended


async def test_output_that_comes_after_the_status_arrives() -> None:
    async with bridged() as ends:
        await ends.peer.send(ends.streams["error"], SUCCESS, is_last=True)
        await ends.peer.send(ends.streams["stdout"], b"late", is_last=True)
        await ends.peer.send(ends.streams["stderr"], b"later", is_last=True)
        assert await ends.rest() == {3: SUCCESS, 1: b"late", 2: b"later"}
        await asyncio.wait_for(ends.ended, 5)


async def test_input_reaches_its_stream_and_ends_alone() -> None:
    async with bridged() as ends:
        await ends.send(0, b"one ")
        await ends.send(0, b"two")
        await ends.close(0)
        assert await ends.peer.received(ends.streams["stdin"]) == b"one two"
        # The command may go on for as long as it likes.
        await ends.peer.send(ends.streams["stdout"], b"counted")
        assert await ends.message() == b"\x01counted"


async def test_input_after_its_end_goes_nowhere() -> None:
    async with bridged() as ends:
        await ends.close(0)
        await ends.close(0)
        await ends.send(0, b"late")
        assert await ends.peer.received(ends.streams["stdin"]) == b""
        await ends.peer.send(ends.streams["stdout"], b"x")
        assert await ends.message() == b"\x01x"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ends.peer.frame(), 0.05)


async def test_a_terminals_size_reaches_its_stream() -> None:
    async with bridged({"stdin": "true", "stdout": "true", "tty": "true"}) as ends:
        await ends.send(4, b'{"Width":80,"Height":24}')
        await ends.close(4)
        sizes = await ends.peer.received(ends.streams["resize"])
        assert sizes == b'{"Width":80,"Height":24}'


async def test_what_a_client_may_not_send_is_passed_over() -> None:
    async with bridged({"stdout": "true"}) as ends:
        for message in (b"", b"\x00x", b"\x01x", b"\x03x", b"\x04x", b"\x09x", b"\xff",
                        b"\xff\x09", b"\xff\xff", b"\xff\x00"):  # fmt: skip
            await ends.websocket.send_bytes(message)
        await ends.websocket.send_str("text")
        await ends.peer.send(ends.streams["stdout"], b"still here")
        assert await ends.message() == b"\x01still here"


async def test_input_after_an_empty_message_arrives() -> None:
    async with bridged({"stdin": "true", "stdout": "true"}) as ends:
        await ends.websocket.send_bytes(b"")
        await ends.send(0, b"input")
        await ends.close(0)
        assert await ends.peer.received(ends.streams["stdin"]) == b"input"


async def test_a_client_that_closes_ends_it() -> None:
    async with bridged() as ends:
        await ends.websocket.close()
        await asyncio.wait_for(ends.ended, 5)


async def test_a_client_that_vanishes_ends_it() -> None:
    async with bridged() as ends:
        transport = ends.websocket._response.connection
        assert transport is not None
        assert transport.transport is not None
        transport.transport.abort()
        await asyncio.wait_for(asyncio.wait([ends.ended]), 5)
        assert ends.ended.done()


async def test_an_upstream_that_ends_without_status_ends_it() -> None:
    async with bridged() as ends:
        await ends.peer.send(ends.streams["stdout"], b"half")
        await ends.peer.connection.write_eof()
        assert await ends.rest() == {1: b"half"}
        await asyncio.wait_for(ends.ended, 5)


async def test_a_reset_of_every_stream_ends_it() -> None:
    async with bridged() as ends:
        for name in ("stdout", "stderr", "error"):
            await ends.peer.reset(ends.streams[name])
        assert await ends.rest() == {}
        await asyncio.wait_for(ends.ended, 5)


async def test_protocol_violation_of_the_upstream_is_an_error() -> None:
    async with bridged() as ends:
        await ends.peer.connection.write(b"\x80\x02\0\1\0\0\0\0")
        with pytest.raises(OSError, match="SPDY"):
            await asyncio.wait_for(ends.ended, 5)


async def test_silence_ends_it() -> None:
    async with bridged(idle_s=0.1) as ends:
        assert await ends.rest() == {}
        await asyncio.wait_for(ends.ended, 5)


async def test_traffic_of_either_side_restarts_the_idle_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(channels, "IdleTimer", lambda limit_s: IdleTimer(limit_s, clock))
    async with bridged(idle_s=10) as ends:
        await settle()
        clock.advance(9)
        await ends.send(0, b"x")
        await ends.peer.frame()
        clock.advance(9)
        await settle()
        assert not ends.ended.done()
        await ends.peer.send(ends.streams["stdout"], b"y")
        assert await ends.message() == b"\x01y"
        clock.advance(9)
        await settle()
        assert not ends.ended.done()
        clock.advance(1)
        assert await ends.rest() == {}
        await asyncio.wait_for(ends.ended, 5)


async def test_data_of_unknown_streams_is_passed_over() -> None:
    async with bridged() as ends:
        await ends.peer.send(99, b"?")
        await ends.peer.send(ends.streams["stdin"], b"?")
        await ends.peer.send(ends.streams["stdout"], b"known")
        assert await ends.message() == b"\x01known"
