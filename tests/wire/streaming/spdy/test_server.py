"""The server's side of a session, against our own client's side and bare frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from moorage.wire.streaming.connection import Connection, IdleTimer
from moorage.wire.streaming.inbox import LIMIT_BYTES
from moorage.wire.streaming.spdy import ServerSession, SpdySession, SpdyStream
from moorage.wire.streaming.spdy.frames import (
    FIN,
    Control,
    Data,
    Frame,
    FrameError,
    FrameReader,
    FrameType,
    HeaderCodec,
    control_frame,
    data_frame,
    number,
    open_frame,
    ping_frame,
    reset_frame,
)
from tests.clocks import FakeClock, settle
from tests.wire.streaming.pairs import connected

DEADLINE_S = 5.0


class Served:
    """A session that agrees to streams, those it has, and the client's end of the connection."""

    def __init__(
        self, ours: Connection, theirs: Connection, admit: Callable[[SpdyStream], bool] | None
    ) -> None:
        self.client = theirs
        self.streams: list[SpdyStream] = []
        self._opened = asyncio.Event()
        self._admit = admit
        self.clock = FakeClock()
        self.timer = IdleTimer(60, self.clock)
        self.session = ServerSession(ours, self._take, self.timer)
        self.running = asyncio.ensure_future(self.session.run())
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self.codec = HeaderCodec()

    def _take(self, stream: SpdyStream) -> bool:
        self.streams.append(stream)
        self._opened.set()
        return self._admit is None or self._admit(stream)

    async def stream(self, place: int) -> SpdyStream:
        """The stream that was opened as so manieth."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.streams) <= place:
                self._opened.clear()
                await self._opened.wait()
        return self.streams[place]

    async def open(self, stream: int, flags: int = 0) -> None:
        """Open a stream by a bare frame."""
        frame = bytearray(open_frame(self.codec, stream, {"streamtype": "x"}))
        frame[4] = flags
        await self.client.write(bytes(frame))

    async def frame(self) -> Frame:
        """The next frame the server sent."""
        async with asyncio.timeout(DEADLINE_S):
            while not self._frames:
                received = await self.client.read()
                assert received, "the server ended the connection"
                self._frames += self._reader.feed(received)
        return self._frames.pop(0)

    async def control(self, kind: FrameType) -> Control:
        """The next frame, which must be of that kind."""
        frame = await self.frame()
        assert isinstance(frame, Control), frame
        assert frame.type == kind, frame
        return frame


@asynccontextmanager
async def served(
    admit: Callable[[SpdyStream], bool] | None = None,
) -> AsyncIterator[Served]:
    async with connected() as (ours, theirs):
        server = Served(ours, theirs, admit)
        try:
            yield server
        finally:
            server.running.cancel()
            await asyncio.wait([server.running])


async def test_each_stream_is_a_byte_stream_of_its_own() -> None:
    async with served() as server:
        client = SpdySession(server.client)
        one, other = await client.open({"port": "1"}), await client.open({"port": "2"})
        await client.write(other, b"to the other")
        await client.end(other)
        await client.write(one, b"to the one")
        assert (await server.stream(0)).headers == {"port": "1"}
        assert server.streams[0].can_half_close
        assert await server.streams[0].read() == b"to the one"
        assert await server.streams[1].read() == b"to the other"
        assert await server.streams[1].read() == b""
        await server.streams[0].write(b"back")
        await server.streams[0].write_eof()
        received = client.data()
        assert await anext(received) == Data(one, b"back", is_last=False)
        assert await anext(received) == Data(one, b"", is_last=True)


async def test_what_is_received_and_what_is_sent_are_traffic() -> None:
    async with served() as server:
        await server.open(1)
        stream = await server.stream(0)
        await server.control(FrameType.SYN_REPLY)
        for data in (b"in", b"out"):
            server.clock.advance(1)
            if data == b"in":
                await server.client.write(data_frame(1, data))
                assert await stream.read() == data
            else:
                await stream.write(data)
            assert server.timer.idle_s == 0


async def test_a_stream_that_is_not_admitted_is_refused() -> None:
    async with served(lambda _: False) as server:
        await server.open(1)
        reset = await server.control(FrameType.RST_STREAM)
        assert (reset.stream, number(reset.payload, 4)) == (1, 3)
        assert not server.session.open_streams
        await server.client.write(ping_frame(1))
        await server.control(FrameType.PING)


async def test_a_stream_may_come_ended_already() -> None:
    async with served() as server:
        await server.open(1, FIN)
        stream = await server.stream(0)
        assert await stream.read() == b""
        await server.control(FrameType.SYN_REPLY)
        # The other direction is open.
        assert not stream.is_over
        assert list(server.session.open_streams) == [stream]
        await stream.write(b"answer")
        assert await server.frame() == Data(1, b"answer", is_last=False)
        await stream.reset()
        assert (await server.control(FrameType.RST_STREAM)).stream == 1
        assert not server.session.open_streams


async def test_a_stream_that_this_side_ends_still_receives() -> None:
    async with served() as server:
        await server.open(1)
        stream = await server.stream(0)
        await server.control(FrameType.SYN_REPLY)
        for _ in range(2):
            await stream.write_eof()
        assert await server.frame() == Data(1, b"", is_last=True)
        assert not stream.is_over
        await server.client.write(data_frame(1, b"late") + data_frame(1, b"", is_last=True))
        assert await stream.read() == b"late"
        assert await stream.read() == b""
        assert stream.is_over
        assert not server.session.open_streams
        with pytest.raises(ConnectionResetError, match="stream 1 has been ended by this side"):
            await stream.write(b"x")


async def test_streams_over_the_limit_are_refused() -> None:
    async with served() as server:

        async def open_all() -> None:
            for place in range(4097):
                await server.open(2 * place + 1)

        opening = asyncio.ensure_future(open_all())
        for _ in range(4096):
            await server.control(FrameType.SYN_REPLY)
        await server.control(FrameType.RST_STREAM)
        await opening


@pytest.mark.parametrize("second", [5, 6, 3], ids=["again", "even", "lower"])
async def test_a_number_that_a_client_cannot_use_ends_the_session(second: int) -> None:
    async with served() as server:
        await server.open(5)
        await server.control(FrameType.SYN_REPLY)
        await server.open(second)
        farewell = await server.control(FrameType.GOAWAY)
        # The last stream, and PROTOCOL_ERROR.
        assert (number(farewell.payload), number(farewell.payload, 4)) == (5, 1)
        with pytest.raises(FrameError, match="cannot open stream"):
            await server.running
        with pytest.raises(FrameError):
            await server.streams[0].read()


async def test_data_for_an_unknown_stream_is_reset_and_the_session_continues() -> None:
    async with served() as server:
        await server.client.write(data_frame(7, b"x"))
        reset = await server.control(FrameType.RST_STREAM)
        assert (reset.stream, number(reset.payload, 4)) == (7, 2)
        await server.open(9)
        await server.control(FrameType.SYN_REPLY)


async def test_data_for_a_stream_that_is_over_is_passed_over() -> None:
    async with served() as server:
        await server.open(1)
        await server.control(FrameType.SYN_REPLY)
        await server.streams[0].reset()
        reset = await server.control(FrameType.RST_STREAM)
        assert (reset.stream, number(reset.payload, 4)) == (1, 5)
        assert not server.session.open_streams
        await server.streams[0].reset()
        await server.client.write(data_frame(1, b"late") + ping_frame(1))
        await server.control(FrameType.PING)


async def test_a_stream_that_this_side_resets_drops_what_was_received() -> None:
    async with served() as server:
        await server.open(1)
        await server.open(3)
        await server.client.write(data_frame(1, b"unread") + ping_frame(1))
        for kind in (FrameType.SYN_REPLY, FrameType.SYN_REPLY, FrameType.PING):
            await server.control(kind)
        other_reader = asyncio.ensure_future(server.streams[1].read())
        for stream in server.streams:
            await stream.reset()
        assert await server.streams[0].read() == b""
        async with asyncio.timeout(DEADLINE_S):
            assert await other_reader == b""
        with pytest.raises(ConnectionResetError, match="stream 1 has been ended by this side"):
            await server.streams[0].write(b"x")


async def test_a_reset_of_a_full_stream_lets_the_session_go_on() -> None:
    async with served() as server:
        await server.open(1)
        stream = await server.stream(0)
        feeding = asyncio.ensure_future(stream.take(b"x" * LIMIT_BYTES, is_last=False))
        await settle()
        assert not feeding.done()
        await stream.reset()
        async with asyncio.timeout(DEADLINE_S):
            await feeding


async def test_a_reset_loses_one_stream_after_what_came_before() -> None:
    async with served() as server:
        await server.open(1)
        await server.open(3)
        await server.client.write(
            data_frame(1, b"before") + reset_frame(1, 5) + data_frame(3, b"x")
        )
        assert await (await server.stream(1)).read() == b"x"
        assert await server.streams[0].read() == b"before"
        with pytest.raises(ConnectionResetError, match="reset stream 1"):
            await server.streams[0].read()
        with pytest.raises(ConnectionResetError, match="reset stream 1"):
            await server.streams[0].write(b"y")
        await server.streams[1].write(b"still there")
        # A stream that is lost is over: nothing more is sent about it.
        assert server.streams[0].is_over
        await server.streams[0].reset()
        await server.streams[0].write_eof()
        await server.client.write(ping_frame(1))
        for kind in (FrameType.SYN_REPLY, FrameType.SYN_REPLY):
            await server.control(kind)
        assert await server.frame() == Data(3, b"still there", is_last=False)
        await server.control(FrameType.PING)


async def test_pings_are_answered_and_other_frames_passed_over() -> None:
    async with served() as server:
        headers = b"\0\0\0\1" + server.codec.encode({"a": "b"})
        await server.client.write(
            ping_frame(2)
            + control_frame(FrameType.SETTINGS, b"\0\0\0\0")
            + control_frame(FrameType.WINDOW_UPDATE, b"\0" * 8)
            + control_frame(99, b"?")
            + control_frame(FrameType.HEADERS, headers)
            + ping_frame(1)
        )
        assert number((await server.control(FrameType.PING)).payload) == 1
        # The ignored HEADERS frame advanced the compression state.
        await server.open(1)
        assert (await server.stream(0)).headers == {"streamtype": "x"}


async def test_everything_is_lost_when_the_client_goes() -> None:
    async with served() as server:
        await server.open(1)
        stream = await server.stream(0)
        server.client.abort()
        with pytest.raises(ConnectionResetError):
            await stream.read()
        with pytest.raises(ConnectionResetError):
            await stream.write(b"x")
        await asyncio.wait([server.running])
        assert not server.session.open_streams


async def test_nothing_is_read_for_a_stream_whose_reader_has_enough() -> None:
    async with served() as server:
        await server.open(1)
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while sent < 64 << 20:
                await server.client.write(data_frame(1, b"x" * (1 << 20)))
                sent += 1 << 20

        flooding = asyncio.ensure_future(flood())
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 32 << 20
        received = 0
        while received < 64 << 20:
            received += len(await server.streams[0].read())
        await flooding


async def test_discarded_data_blocks_no_other_stream() -> None:
    async with served() as server:
        await server.open(1)
        (await server.stream(0)).discard()
        async with asyncio.timeout(DEADLINE_S):
            await server.client.write(data_frame(1, b"x" * (8 << 20)) + ping_frame(1))
        await server.control(FrameType.SYN_REPLY)
        await server.control(FrameType.PING)


@pytest.mark.parametrize("cut", range(1, 40, 3))
async def test_a_client_may_go_in_the_middle_of_a_frame(cut: int) -> None:
    async with served() as server:
        frame = open_frame(server.codec, 1, {"streamtype": "stdin"})
        await server.client.write(frame[:cut])
        await server.client.write_eof()
        async with asyncio.timeout(DEADLINE_S):
            await server.running


async def test_write_after_end_is_an_error() -> None:
    async with served() as server:
        await server.open(1)
        stream = await server.stream(0)
        await stream.write_eof()
        await stream.write_eof()
        with pytest.raises(ConnectionResetError, match="ended by this side"):
            await stream.write(b"x")
        await server.control(FrameType.SYN_REPLY)
        assert await server.frame() == Data(1, b"", is_last=True)
        # What the client still sends is read.
        await server.client.write(data_frame(1, b"late"))
        assert await stream.read() == b"late"
        # The second end sent nothing.
        await server.client.write(ping_frame(1))
        await server.control(FrameType.PING)


@pytest.mark.parametrize("ends_first", ["client", "server", "reset"])
async def test_a_stream_that_is_over_makes_room_for_another(ends_first: str) -> None:
    async with served() as server:
        await server.open(1)
        stream = await server.stream(0)
        await server.control(FrameType.SYN_REPLY)
        if ends_first == "reset":
            await stream.reset()
        elif ends_first == "server":
            await stream.write_eof()
        await server.client.write(data_frame(1, b"", is_last=True) + ping_frame(1))
        if ends_first != "client":
            await server.frame()
        await server.control(FrameType.PING)
        await stream.write_eof()
        assert stream.is_over
        assert not server.session.open_streams
