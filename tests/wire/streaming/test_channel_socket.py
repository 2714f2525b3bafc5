"""How messages of numbered channels are written and read, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.wire.streaming.channel_socket import ChannelError, ChannelSocket, Coding, SocketChannel
from moorage.wire.streaming.connection import IdleTimer
from moorage.wire.streaming.inbox import LIMIT_BYTES
from tests.clocks import FakeClock, settle


@given(st.integers(0, 79), st.binary(), st.booleans())
def test_what_is_written_is_read(channel: int, data: bytes, is_base64: bool) -> None:
    coding = Coding(is_base64=is_base64)
    message = coding.encode(channel, data)
    assert isinstance(message, str) == is_base64
    wire = message.encode() if isinstance(message, str) else message
    assert coding.decode(wire) == (channel, data)


@pytest.mark.parametrize("channel", [10, 99, 254])
def test_binary_channels_go_beyond_a_digit(channel: int) -> None:
    coding = Coding()
    message = coding.encode(channel, b"x")
    assert isinstance(message, bytes)
    assert coding.decode(message) == (channel, b"x")


@given(st.binary(), st.booleans())
def test_any_bytes_are_a_message_or_a_channel_error(message: bytes, is_base64: bool) -> None:
    try:
        channel, data = Coding(is_base64=is_base64).decode(message)
    except ChannelError:
        return
    assert len(data) < len(message)
    assert -48 <= channel <= 255


@pytest.mark.parametrize("message", [b"", b"0!!!", b"0YQ"])
def test_bad_base64_is_an_error(message: bytes) -> None:
    with pytest.raises(ChannelError):
        Coding(is_base64=True).decode(message)


@pytest.mark.parametrize(
    ("coding", "message"), [(Coding(), b"\x02hi"), (Coding(is_base64=True), "2aGk=")]
)
def test_messages_on_the_wire(coding: Coding, message: bytes | str) -> None:
    assert coding.encode(2, b"hi") == message


def test_messages_are_binary_and_channels_end_together_unless_asked() -> None:
    assert Coding() == Coding(is_base64=False, can_end=False)
    assert not SocketChannel.can_half_close


class FakeWebSocket:
    """The server's side of a websocket whose messages the test writes and reads."""

    def __init__(self) -> None:
        self.arriving: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: list[bytes | str] = []

    def say(self, *messages: bytes | str) -> None:
        for message in messages:
            is_text = isinstance(message, str)
            type_ = aiohttp.WSMsgType.TEXT if is_text else aiohttp.WSMsgType.BINARY
            self.arriving.put_nowait(SimpleNamespace(type=type_, data=message))

    def close(self) -> None:
        self.arriving.put_nowait(SimpleNamespace(type=aiohttp.WSMsgType.CLOSE, data=b""))

    async def receive(self) -> Any:
        return await self.arriving.get()

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    async def send_str(self, data: str) -> None:
        self.sent.append(data)


class Bench:
    """A socket of three channels, its client, and the clock of its silence."""

    def __init__(self, coding: Coding) -> None:
        self.client = FakeWebSocket()
        self.clock = FakeClock()
        self.timer = IdleTimer(10, self.clock)
        websocket: Any = self.client
        self.socket = ChannelSocket(websocket, 3, coding, self.timer)
        self.channels = self.socket.channels
        self.running: asyncio.Task[None]

    @property
    def silent_s(self) -> float:
        return self.timer.idle_s


@asynccontextmanager
async def bench(**coding: bool) -> AsyncIterator[Bench]:
    result = Bench(Coding(**coding))
    result.running = asyncio.create_task(result.socket.run())
    await settle()
    try:
        yield result
    finally:
        result.running.cancel()
        await asyncio.wait([result.running])


@pytest.mark.parametrize("is_base64", [False, True])
async def test_messages_go_to_their_channels_and_come_from_them(is_base64: bool) -> None:
    async with bench(is_base64=is_base64) as b:
        b.clock.advance(7)
        b.client.say(*(("0YQ==", "2Yg==") if is_base64 else (b"\x00a", b"\x02b")))
        await settle()
        assert [await b.channels[0].read(), await b.channels[2].read()] == [b"a", b"b"]
        assert b.silent_s == 0
        b.clock.advance(5)
        await b.channels[1].write(b"out")
        assert b.client.sent == (["1b3V0"] if is_base64 else [b"\x01out"])
        assert b.silent_s == 0
        await b.channels[1].write_eof()
        assert len(b.client.sent) == 1


async def test_large_and_empty_writes() -> None:
    async with bench() as b:
        data = bytes(range(256)) * 300
        await b.channels[1].write(data)
        assert [len(message) for message in b.client.sent] == [32769, 32769, 11265]
        assert b"".join(bytes(message[1:]) for message in b.client.sent) == data  # type: ignore[arg-type]
        b.client.sent.clear()
        await b.channels[2].write(b"")
        assert b.client.sent == [b"\x02"]


async def test_messages_for_no_channel_are_passed_over() -> None:
    async with bench() as b:
        b.client.say(b"\x03x", b"\xffx", b"\x00a")
        await settle()
        assert await b.channels[0].read() == b"a"
        assert not b.running.done()
    async with bench(is_base64=True) as b:
        b.client.say("/YQ==", "0YQ==")
        await settle()
        assert await b.channels[0].read() == b"a"
        assert all(not channel.inbox.is_full for channel in b.channels)


@pytest.mark.parametrize("can_end", [False, True])
async def test_a_client_may_end_one_channel(can_end: bool) -> None:
    async with bench(can_end=can_end) as b:
        b.client.say(b"\x00a", b"\xff\x00", b"\xff", b"\xff\x03", b"\x01b")
        await settle()
        assert [channel.inbox.has_ended for channel in b.channels] == [can_end, False, False]
        assert await b.channels[0].read() == b"a"
        if can_end:
            assert await b.channels[0].read() == b""
        assert await b.channels[1].read() == b"b"


async def test_unread_channel_blocks_the_client() -> None:
    async with bench() as b:
        b.client.say(b"\x00" + b"x" * LIMIT_BYTES, b"\x01later")
        await settle()
        assert b.channels[0].inbox.is_full
        assert b.client.arriving.qsize() == 1
        assert len(await b.channels[0].read()) == LIMIT_BYTES
        await settle()
        assert await b.channels[1].read() == b"later"


@pytest.mark.parametrize("how", ["discard", "reset"])
async def test_what_is_not_wanted_is_dropped(how: str) -> None:
    async with bench() as b:
        if how == "discard":
            b.channels[0].discard()
        else:
            await b.channels[0].reset()
        b.client.say(b"\x00" + b"x" * LIMIT_BYTES, b"\x01later")
        await settle()
        assert await b.channels[1].read() == b"later"
        assert await b.channels[0].read() == b""


async def test_the_end_of_the_client_ends_every_channel() -> None:
    async with bench() as b:
        b.client.say(b"\x00last")
        b.client.close()
        await asyncio.wait_for(b.running, 5)
        assert await b.channels[0].read() == b"last"
        for channel in b.channels:
            with pytest.raises(ConnectionResetError, match="the client disconnected"):
                await channel.read()


async def test_invalid_message_ends_every_channel_with_the_error() -> None:
    async with bench(is_base64=True) as b:
        b.client.say("0!!!")
        await asyncio.wait([b.running], timeout=5)
        assert isinstance(b.running.exception(), ChannelError)
        for channel in b.channels:
            with pytest.raises(ChannelError, match="not base64"):
                await channel.read()
