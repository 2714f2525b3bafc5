"""SPDY client session: opens streams, writes to them, receives their data.

Kubernetes' servers neither send nor expect window updates for these streams, so the connection's
own backpressure is the only one: nothing is read while `data` is not being iterated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping

from moorage.wire.streaming.connection import Connection
from moorage.wire.streaming.spdy.frames import (
    Control,
    Data,
    FrameReader,
    FrameType,
    HeaderCodec,
    data_frame,
    number,
    open_frame,
    ping_frame,
)

_CHUNK_BYTES = 1 << 20
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
        for start in range(0, len(data), _CHUNK_BYTES):
            await self._connection.write(data_frame(stream, data[start : start + _CHUNK_BYTES]))

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
