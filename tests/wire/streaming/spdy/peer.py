"""A small SPDY server for one connection: agrees to streams, sends what the test says."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from moorage.wire.streaming.connection import Connection
from moorage.wire.streaming.spdy import SpdySession
from moorage.wire.streaming.spdy.frames import (
    FIN,
    Control,
    Data,
    Frame,
    FrameReader,
    FrameType,
    HeaderCodec,
    control_frame,
    data_frame,
    reset_frame,
)
from tests.wire.streaming.pairs import connected


@dataclass(frozen=True, slots=True)
class Opened:
    """A stream that the client has opened."""

    number: int
    headers: dict[str, str]


class FakeSpdyPeer:
    """The server's side, written with its own state of compression."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._reader = FrameReader()
        self._codec = HeaderCodec()
        self._frames: list[Frame] = []

    async def frame(self) -> Frame:
        """The next frame from the client. Raises EOFError when it has ended."""
        while not self._frames:
            data = await self.connection.read()
            if not data:
                raise EOFError
            self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    async def opened(self) -> Opened:
        """The next frame, which must open a stream."""
        frame = await self.frame()
        assert isinstance(frame, Control)
        assert frame.type == FrameType.SYN_STREAM
        return Opened(frame.stream, self._codec.decode(frame.payload[10:]))

    async def agree(self) -> Opened:
        """Take the next stream and agree to it."""
        stream = await self.opened()
        reply = struct.pack(">I", stream.number) + self._codec.encode({})
        await self.connection.write(control_frame(FrameType.SYN_REPLY, reply))
        return stream

    async def agree_to_all(self, count: int) -> dict[str, int]:
        """Take that many streams; their numbers by `streamtype`."""
        streams = [await self.agree() for _ in range(count)]
        return {stream.headers["streamtype"]: stream.number for stream in streams}

    async def received(self, stream: int) -> bytes:
        """What the client sends on a stream until it ends it; other streams' frames are skipped."""
        data = b""
        while True:
            frame = await self.frame()
            if isinstance(frame, Data) and frame.stream == stream:
                data += frame.payload
                if frame.is_last:
                    return data

    async def send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        await self.connection.write(data_frame(stream, data, is_last=is_last))

    async def reset(self, stream: int, status: int = 1) -> None:
        await self.connection.write(reset_frame(stream, status))

    async def control(self, type_: int, payload: bytes = b"", flags: int = FIN) -> None:
        await self.connection.write(control_frame(type_, payload, flags))


@asynccontextmanager
async def session() -> AsyncIterator[tuple[SpdySession, FakeSpdyPeer]]:
    """A session and its peer."""
    async with connected() as (ours, theirs):
        yield SpdySession(ours), FakeSpdyPeer(theirs)
