"""Clients of the endpoint: our own SPDY client, and a websocket client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from moorage.engine.streams import StreamServer, Target
from moorage.wire.streaming.connection import Deadlines
from moorage.wire.streaming.dial import Refused, Upgraded, Upstream, dial
from moorage.wire.streaming.spdy import SpdySession
from moorage.wire.streaming.upgrade import PROTOCOL_VERSION, SPDY
from tests.clocks import FakeClock
from tests.engine.streams.targets import DEADLINE_S

V4 = "v4.channel.k8s.io"
PORT_FORWARD = "portforward.k8s.io"
PATIENT = Deadlines(drain_s=DEADLINE_S)
# Only for tests of the deadlines themselves: a busy machine misses them.
QUICK = Deadlines(stream_creation_s=1.0, drain_s=0.2)


@asynccontextmanager
async def serving(
    target: Target, deadlines: Deadlines = PATIENT, clock: FakeClock | None = None
) -> AsyncIterator[StreamServer]:
    """A server whose streams must have ended a little after the test."""
    async with asyncio.timeout(6 * DEADLINE_S):
        async with StreamServer(target, clock=clock, deadlines=deadlines) as server:
            yield server


@dataclass
class SpdyCaller:
    """A SPDY client with a stream for each name, and what came on them."""

    session: SpdySession
    answer: Upgraded
    streams: dict[str, int] = field(default_factory=dict)
    received: dict[str, bytearray] = field(default_factory=dict)

    async def open(self, *names: str) -> None:
        for name in names:
            self.streams[name] = await self.session.open({"streamType": name})
            self.received[name] = bytearray()

    async def write(self, name: str, data: bytes) -> None:
        await self.session.write(self.streams[name], data)

    async def end(self, name: str) -> None:
        await self.session.end(self.streams[name])

    async def until(self, name: str, expected: bytes) -> None:
        """Take what comes until a stream has brought that."""
        names = {number: stream for stream, number in self.streams.items()}
        async with asyncio.timeout(DEADLINE_S):
            async for data in self.session.data():
                self.received[names[data.stream]] += data.payload
                if expected in self.received[name]:
                    return
        raise AssertionError(f"the connection ended, with {self.received}")

    async def all(self) -> dict[str, bytes]:
        """Everything that came on each stream until the server ended the error stream."""
        names = {number: stream for stream, number in self.streams.items()}
        async with asyncio.timeout(DEADLINE_S):
            async for data in self.session.data():
                self.received[names[data.stream]] += data.payload
                if data.is_last and names[data.stream] == "error":
                    break
        return {name: bytes(data) for name, data in self.received.items()}


@asynccontextmanager
async def asking(
    url: str, versions: Sequence[str] = (V4,), method: str = "POST"
) -> AsyncIterator[Upgraded | Refused]:
    """The answer to a SPDY client's request."""
    lines = tuple((PROTOCOL_VERSION, version) for version in versions)
    async with dial(Upstream(url=url), method, SPDY, lines) as answer:
        yield answer


@asynccontextmanager
async def spdy(
    url: str, *names: str, versions: Sequence[str] = (V4,), method: str = "POST"
) -> AsyncIterator[SpdyCaller]:
    """A SPDY client that has opened these streams."""
    async with asking(url, versions, method) as answer:
        assert isinstance(answer, Upgraded), answer
        caller = SpdyCaller(SpdySession(answer.connection), answer)
        await caller.open(*names)
        yield caller


@asynccontextmanager
async def websocket(url: str, *protocols: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A websocket client that offers these protocols."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=protocols, max_msg_size=0) as connection,
    ):
        yield connection


async def messages(connection: aiohttp.ClientWebSocketResponse) -> list[bytes | str]:
    """Every message up to the server's closing, which must be in order."""
    received: list[bytes | str] = []
    async with asyncio.timeout(DEADLINE_S):
        async for message in connection:
            received.append(message.data)
    assert connection.close_code == 1000, connection.close_code
    return received


def by_channel(received: Sequence[bytes | str]) -> dict[int, bytes]:
    """What came on each channel of a binary websocket."""
    channels: dict[int, bytes] = {}
    for message in received:
        assert isinstance(message, bytes)
        channels[message[0]] = channels.get(message[0], b"") + message[1:]
    return channels
