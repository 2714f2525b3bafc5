"""SPDY server session: the client opens streams, each served as a byte stream.

    client ──SYN_STREAM──▶ admit(stream) ──▶ accepted, or reset
    client ──data, FIN───▶ stream.read()      stream.write() ──data, FIN──▶ client

Kubernetes' clients and servers use no SPDY flow control, so the connection's own is the only one:
while one stream's inbox is full, nothing is read for any of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress

from moorage.wire.streaming.connection import Connection, IdleTimer
from moorage.wire.streaming.inbox import Inbox
from moorage.wire.streaming.pipe import ByteStream
from moorage.wire.streaming.spdy.frames import (
    FIN,
    Control,
    Data,
    Frame,
    FrameError,
    FrameReader,
    FrameType,
    HeaderCodec,
    ResetStatus,
    data_frame,
    farewell_frame,
    number,
    open_frame,
    opened_headers,
    ping_frame,
    reply_frame,
    reset_frame,
)

# SPDY client session: opens streams, writes to them, receives their data.
#
# Kubernetes' servers neither send nor expect window updates for these streams, so the connection's
# own backpressure is the only one: nothing is read while `data` is not being iterated.

_READ_BYTES = 1 << 20
_EARLY_LIMIT_BYTES = 16 << 20


class SpdyError(OSError):
    """The peer violated the protocol, refused a stream or disconnected early."""


class SpdySession:
    """A connection on which this side opens every stream.

    First `open` the streams, then iterate `data`; writes may be concurrent with it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reader = FrameReader()
        self._codec = HeaderCodec()
        self._queue: deque[Data | Control] = deque()
        self._early: list[Data] = []
        self._early_bytes = 0
        self._next = 1

    async def open(self, headers: Mapping[str, str]) -> int:
        """Open a stream and return its id. Blocks until the peer has accepted it.

        Raises SpdyError when the peer refuses it or disconnects, and OSError when the connection is
        lost.
        """
        stream, self._next = self._next, self._next + 2
        await self._connection.write(open_frame(self._codec, stream, headers))
        async for frame in self._frames():
            if isinstance(frame, Data):
                self._keep_early(frame)
            elif frame.type == FrameType.SYN_REPLY and frame.stream == stream:
                return stream
            elif frame.type == FrameType.RST_STREAM and frame.stream == stream:
                raise SpdyError(f"the stream was refused with status {number(frame.payload, 4)}")
        raise SpdyError("the connection ended while a stream was being opened")

    def _keep_early(self, frame: Data) -> None:
        self._early.append(frame)
        self._early_bytes += len(frame.payload)
        if self._early_bytes > _EARLY_LIMIT_BYTES:
            raise SpdyError("the peer sends before it has agreed to the streams")

    async def write(self, stream: int, data: bytes) -> None:
        """Send bytes on a stream. Raises OSError when the connection is lost."""
        for start in range(0, len(data), _READ_BYTES):
            await self._connection.write(data_frame(stream, data[start : start + _READ_BYTES]))

    async def end(self, stream: int) -> None:
        """Close this direction of a stream. Raises OSError when the connection is lost."""
        await self._connection.write(data_frame(stream, b"", is_last=True))

    async def data(self) -> AsyncIterator[Data]:
        """Yield the data of all streams until the peer ends the connection.

        A reset is yielded as the last data of its stream. Raises OSError when the connection is
        lost, and FrameError (an OSError) for an invalid frame.
        """
        early, self._early = self._early, []
        for arrived in early:
            yield arrived
        async for frame in self._frames():
            if isinstance(frame, Data):
                yield frame
            elif frame.type == FrameType.RST_STREAM:
                yield Data(frame.stream, b"", is_last=True)

    async def _frames(self) -> AsyncIterator[Data | Control]:
        # Queued frames first: an iteration may have stopped between two frames of one read.
        while True:
            while self._queue:
                yield self._queue.popleft()
            received = await self._connection.read()
            if not received:
                return
            for frame in self._reader.feed(received):
                if isinstance(frame, Control) and frame.type == FrameType.PING:
                    await self._answer_ping(frame)
                else:
                    self._queue.append(frame)

    async def _answer_ping(self, frame: Control) -> None:
        ping = number(frame.payload)
        # Odd ids are replies to pings of the client.
        if ping % 2 == 0:
            await self._connection.write(ping_frame(ping))


# A frame fits one message of a websocket tunnel, so a cancelled write never truncates one.
_CHUNK_BYTES = 32 * 1024
_STREAM_LIMIT = 4096
_PROTOCOL_ERROR = 1
_HEADERS_OFFSET = 4


class StreamResetError(ConnectionResetError):
    """The client reset one stream; the others continue."""


class SpdyStream:
    """A stream that the client opened.

    Reads and writes raise OSError once the client has reset it or disconnected.
    """

    can_half_close = True

    def __init__(self, session: ServerSession, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self._session = session
        self._inbox = Inbox()
        self._has_peer_ended = False
        self._has_ended = False
        self._error: OSError | None = None

    @property
    def is_over(self) -> bool:
        """Return whether both directions are closed."""
        return self._has_peer_ended and self._has_ended

    async def read(self) -> bytes:
        """Return received bytes, at least one; empty once the client has closed its direction."""
        return await self._inbox.read()

    async def write(self, data: bytes) -> None:
        """Send bytes. Raises OSError once this direction is closed."""
        for start in range(0, len(data), _CHUNK_BYTES):
            self._insist_on_open()
            await self._session.send(data_frame(self.number, data[start : start + _CHUNK_BYTES]))

    async def write_eof(self) -> None:
        """Close this direction; does nothing if it is closed already."""
        if self._has_ended:
            return
        self._has_ended = True
        self._session.forget_if_over(self)
        await self._session.send(data_frame(self.number, b"", is_last=True))

    async def reset(self) -> None:
        """Reset the stream; does nothing if both directions are closed already."""
        if self.is_over:
            return
        self._has_ended = self._has_peer_ended = True
        self._inbox.discard()
        self._session.forget_if_over(self)
        await self._session.send(reset_frame(self.number, ResetStatus.CANCEL))

    def discard(self) -> None:
        """Drop unread input and ignore what the client sends from now on."""
        self._inbox.discard()

    async def take(self, data: bytes, *, is_last: bool) -> None:
        """Receive bytes; called by the session. Blocks until there is room for more."""
        self._inbox.feed(data)
        if is_last:
            self._has_peer_ended = True
            self._inbox.end()
            self._session.forget_if_over(self)
        elif self._inbox.is_full:
            await self._inbox.room()

    def lose(self, error: OSError) -> None:
        """End both directions with an error; called by the session."""
        self._error = error
        self._has_ended = self._has_peer_ended = True
        self._inbox.end(error)

    def _insist_on_open(self) -> None:
        if self._error is not None:
            raise self._error
        if self._has_ended:
            raise ConnectionResetError(f"stream {self.number} has been ended by this side")


class ServerSession:
    """A connection on which the client opens every stream.

    `admit` returns whether a new stream is accepted; it must not block.
    """

    def __init__(
        self, link: ByteStream, admit: Callable[[SpdyStream], bool], timer: IdleTimer
    ) -> None:
        self._link = link
        self._admit = admit
        self._timer = timer
        self._reader = FrameReader()
        self._codec = HeaderCodec()
        self._streams: dict[int, SpdyStream] = {}
        self._highest = 0

    @property
    def open_streams(self) -> tuple[SpdyStream, ...]:
        """The streams that are not closed in both directions."""
        return tuple(self._streams.values())

    async def run(self) -> None:
        """Receive until the client ends the connection, then end the open streams.

        Blocks while a stream's inbox is full. Raises OSError when the connection breaks and
        FrameError when the client violates the protocol.
        """
        error: OSError = ConnectionResetError("the client disconnected")
        try:
            while received := await self._link.read():
                self._timer.touch()
                for frame in self._reader.feed(received):
                    await self._take(frame)
        except FrameError as broken:
            error = broken
            # Best effort: the client may be disconnected.
            with suppress(OSError):
                await self.send(farewell_frame(self._highest, _PROTOCOL_ERROR))
            raise
        finally:
            for stream in self.open_streams:
                stream.lose(error)
            self._streams.clear()

    async def send(self, frame: bytes) -> None:
        """Send one whole frame. Raises OSError when the connection is lost."""
        await self._link.write(frame)
        self._timer.touch()

    def forget_if_over(self, stream: SpdyStream) -> None:
        """Forget a stream that is closed in both directions; later frames for it are ignored."""
        if stream.is_over:
            self._streams.pop(stream.number, None)

    async def _take(self, frame: Frame) -> None:
        if isinstance(frame, Data):
            await self._take_data(frame)
        elif frame.type == FrameType.SYN_STREAM:
            await self._open(frame)
        elif frame.type == FrameType.RST_STREAM:
            self._reset(frame)
        elif frame.type == FrameType.PING:
            await self._answer_ping(frame)
        elif frame.type == FrameType.HEADERS:
            # Unused, but the compression state of all later headers depends on them.
            self._codec.decode(frame.payload[_HEADERS_OFFSET:])

    async def _take_data(self, frame: Data) -> None:
        stream = self._streams.get(frame.stream)
        if stream is not None:
            await stream.take(frame.payload, is_last=frame.is_last)
        elif frame.stream > self._highest:
            await self.send(reset_frame(frame.stream, ResetStatus.INVALID_STREAM))

    async def _open(self, frame: Control) -> None:
        if frame.stream % 2 == 0 or frame.stream <= self._highest:
            raise FrameError(f"a client cannot open stream {frame.stream} now")
        self._highest = frame.stream
        stream = SpdyStream(self, frame.stream, opened_headers(self._codec, frame))
        if len(self._streams) >= _STREAM_LIMIT or not self._admit(stream):
            await self.send(reset_frame(stream.number, ResetStatus.REFUSED_STREAM))
            return
        self._streams[stream.number] = stream
        reply = reply_frame(self._codec, stream.number)
        if frame.flags & FIN:
            await stream.take(b"", is_last=True)
        await self.send(reply)

    def _reset(self, frame: Control) -> None:
        status = number(frame.payload, 4)
        stream = self._streams.pop(frame.stream, None)
        if stream is not None:
            stream.lose(StreamResetError(f"the client reset stream {stream.number} ({status})"))

    async def _answer_ping(self, frame: Control) -> None:
        # Even ids would be the server's own, and it sends none.
        if number(frame.payload) % 2:
            await self.send(ping_frame(number(frame.payload)))
