"""Port-forward: pairs over SPDY, SPDY in a websocket, and numbered channels."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from moorage.engine.errors import NotFoundError
from moorage.wire.cri import pb
from moorage.wire.streaming.channel_socket import TUNNEL
from moorage.wire.streaming.dial import Upgraded
from moorage.wire.streaming.spdy import SpdyError, SpdySession
from moorage.wire.streaming.spdy.frames import Data, FrameType, control_frame
from tests.engine.streams.callers import (
    PORT_FORWARD,
    QUICK,
    asking,
    by_channel,
    messages,
    serving,
    websocket,
)
from tests.engine.streams.targets import DEADLINE_S, FakeTarget
from tests.ports import free_port
from tests.wire.streaming.pairs import connected

ASKED = pb.PortForwardRequest(pod_sandbox_id="s1")
V4 = "v4.channel.k8s.io"


@asynccontextmanager
async def echoing(host: str = "127.0.0.1") -> AsyncIterator[int]:
    """The port of a server that gives back what it gets, and ends when its client does."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
            writer.write(b".")
        finally:
            writer.close()

    server = await asyncio.start_server(serve, host, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def resetting() -> AsyncIterator[int]:
    """The port of a server that says a word and resets the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"word")
        await writer.drain()
        await reader.read(1)
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


class Forwarder:
    """A client's side: pairs, and what came on each stream."""

    def __init__(self, session: SpdySession) -> None:
        self.session = session
        self.received: dict[int, bytearray] = {}
        self.ended: set[int] = set()
        self._count = 0

    async def pair(self, port: int | str, *, with_id: bool = True) -> tuple[int, int]:
        """Open a pair: error stream and data stream."""
        self._count += 1
        headers = {"port": str(port)} | ({"requestID": str(self._count)} if with_id else {})
        error = await self.session.open({"streamType": "error", **headers})
        await self.session.end(error)
        data = await self.session.open({"streamType": "data", **headers})
        return error, data

    async def until_ended(self, *streams: int) -> None:
        """Take what comes until these streams have ended."""
        async with asyncio.timeout(DEADLINE_S):
            while not self.ended.issuperset(streams):
                async for chunk in self.session.data():
                    self._keep(chunk)
                    if self.ended.issuperset(streams):
                        return
                raise AssertionError(f"the connection ended; so far {self.received}")

    def _keep(self, data: Data) -> None:
        self.received.setdefault(data.stream, bytearray()).extend(data.payload)
        if data.is_last:
            self.ended.add(data.stream)

    def of(self, stream: int) -> bytes:
        return bytes(self.received.get(stream, b""))


@asynccontextmanager
async def over_spdy(url: str) -> AsyncIterator[Forwarder]:
    async with asking(url, [PORT_FORWARD]) as answer:
        assert isinstance(answer, Upgraded), answer
        yield Forwarder(SpdySession(answer.connection))


@asynccontextmanager
async def over_tunnel(url: str) -> AsyncIterator[Forwarder]:
    """SPDY in the binary messages of a websocket."""
    async with websocket(url, TUNNEL) as tunnel, connected() as (ours, theirs):
        assert tunnel.protocol == TUNNEL

        async def up() -> None:
            while data := await theirs.read():
                await tunnel.send_bytes(data)

        async def down() -> None:
            async for message in tunnel:
                await theirs.write(message.data)

        async with asyncio.TaskGroup() as group:
            copying = [group.create_task(up()), group.create_task(down())]
            yield Forwarder(SpdySession(ours))
            for task in copying:
                task.cancel()


@pytest.fixture(params=[over_spdy, over_tunnel])
def forwarding(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    return request.param


async def test_bytes_go_both_ways_and_each_end_is_passed_on(forwarding) -> None:  # type: ignore[no-untyped-def]
    async with (
        echoing() as port,
        serving(FakeTarget()) as server,
        forwarding(server.port_forward_url(ASKED)) as client,
    ):
        error, data = await client.pair(port)
        await client.session.write(data, b"hello")
        await client.session.end(data)
        await client.until_ended(error, data)
        assert client.of(data) == b"hello."
        assert client.of(error) == b""


async def test_many_connections_go_at_once_and_much_on_each(forwarding) -> None:  # type: ignore[no-untyped-def]
    payload = bytes(range(256)) * 1024
    async with (
        echoing() as port,
        serving(FakeTarget()) as server,
        forwarding(server.port_forward_url(ASKED)) as client,
    ):
        pairs = [await client.pair(port) for _ in range(40)]

        async def send() -> None:
            for start in range(0, len(payload), 1 << 15):
                for _, data in pairs:
                    await client.session.write(data, payload[start : start + (1 << 15)])
            for _, data in pairs:
                await client.session.end(data)

        streams = [stream for pair in pairs for stream in pair]
        await asyncio.gather(send(), client.until_ended(*streams))
        assert all(client.of(data) == payload + b"." for _, data in pairs)


async def test_port_without_listener_fails_only_its_pair(forwarding) -> None:  # type: ignore[no-untyped-def]
    closed = free_port()
    async with (
        echoing() as port,
        serving(FakeTarget()) as server,
        forwarding(server.port_forward_url(ASKED)) as client,
    ):
        good = await client.pair(port)
        bad = await client.pair(closed)
        await client.until_ended(*bad)
        assert (
            client.of(bad[0])
            == (
                f"error forwarding port {closed} to pod s1: connection refused: nothing in the pod "
                f"listens on 127.0.0.1:{closed} or [::1]:{closed}"
            ).encode()
        )
        await client.session.write(good[1], b"still")
        await client.session.end(good[1])
        await client.until_ended(*good)
        assert client.of(good[1]) == b"still."


async def test_refusal_of_the_engine_is_sent_on_the_error_stream() -> None:
    async with (
        serving(FakeTarget(error=NotFoundError("no sandbox s1"))) as server,
        over_spdy(server.port_forward_url(ASKED)) as client,
    ):
        error, data = await client.pair(80)
        await client.until_ended(error, data)
        assert client.of(error).endswith(b"no sandbox s1")


async def test_broken_connection_resets_its_data_stream_without_message() -> None:
    async with (
        resetting() as port,
        serving(FakeTarget()) as server,
        over_spdy(server.port_forward_url(ASKED)) as client,
    ):
        error, data = await client.pair(port)
        await client.session.write(data, b"x")
        await client.until_ended(error, data)
        assert client.of(data) == b"word"
        assert client.of(error) == b""


async def test_reset_of_a_pair_keeps_the_others() -> None:
    async with (
        echoing() as port,
        serving(FakeTarget()) as server,
        over_spdy(server.port_forward_url(ASKED)) as client,
    ):
        one, other = await client.pair(port), await client.pair(port)
        reset = one[1].to_bytes(4, "big") + b"\0\0\0\5"
        await client.session._connection.write(control_frame(FrameType.RST_STREAM, reset))
        await client.session.write(other[1], b"on")
        await client.session.end(other[1])
        await client.until_ended(*other, one[0])
        assert client.of(other[1]) == b"on."


async def test_bytes_for_an_ended_pair_block_no_other() -> None:
    async with (
        echoing() as port,
        serving(FakeTarget()) as server,
        over_spdy(server.port_forward_url(ASKED)) as client,
    ):
        bad = await client.pair(free_port())
        await client.until_ended(*bad)
        await client.session.write(bad[1], b"x" * (2 << 20))
        good = await client.pair(port)
        await client.session.end(good[1])
        await client.until_ended(*good)
        assert client.of(good[1]) == b"."


async def test_ipv6_is_tried_when_ipv4_has_no_listener() -> None:
    async with (
        echoing("::1") as port,
        serving(FakeTarget()) as server,
        over_spdy(server.port_forward_url(ASKED)) as client,
    ):
        error, data = await client.pair(port)
        await client.session.end(data)
        await client.until_ended(error, data)
        assert client.of(data) == b"."


async def test_clients_of_old_send_no_request_id() -> None:
    async with (
        echoing() as port,
        serving(FakeTarget()) as server,
        over_spdy(server.port_forward_url(ASKED)) as client,
    ):
        error, data = await client.pair(port, with_id=False)
        await client.session.end(data)
        await client.until_ended(error, data)
        assert client.of(data) == b"."


@pytest.mark.parametrize("port", ["", "0", "65536", "-1", "80x", "9" * 5000, "٨٠"])
async def test_stream_with_an_invalid_port_is_refused(port: str) -> None:
    async with (
        serving(FakeTarget()) as server,
        over_spdy(server.port_forward_url(ASKED)) as client,
    ):
        with pytest.raises(SpdyError, match="refused"):
            await client.pair(port)


@pytest.mark.slow
async def test_half_a_pair_is_reset_after_its_time() -> None:
    async with (
        serving(FakeTarget(), QUICK) as server,
        over_spdy(server.port_forward_url(ASKED)) as client,
    ):
        headers = {"streamType": "error", "port": "80", "requestID": "1"}
        half = await client.session.open(headers)
        with pytest.raises(SpdyError, match="refused"):
            await client.session.open(headers)
        await client.until_ended(half)


# A control frame of SPDY version 2.
WRONG_VERSION = b"\x80\x02\0\1\0\0\0\0"


async def test_a_malformed_frame_ends_the_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "moorage.engine.streams.endpoint")
    async with (
        serving(FakeTarget()) as server,
        asking(server.port_forward_url(ASKED), [PORT_FORWARD]) as answer,
        websocket(server.port_forward_url(ASKED), TUNNEL) as tunnel,
    ):
        assert isinstance(answer, Upgraded)
        await answer.connection.write(WRONG_VERSION)
        await tunnel.send_bytes(WRONG_VERSION)
        async with asyncio.timeout(DEADLINE_S):
            while await answer.connection.read():
                pass
            async for _ in tunnel:
                pass
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if "stream broke" in line]) == 2, lines


async def test_the_connections_into_the_pod_end_with_the_client() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        except ConnectionResetError:
            pass
        finally:
            writer.close()
            ended.set()

    pod = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with pod, serving(FakeTarget()) as server:
        async with over_spdy(server.port_forward_url(ASKED)) as client:
            await client.pair(pod.sockets[0].getsockname()[1])
            client.session._connection.abort()
        async with asyncio.timeout(DEADLINE_S):
            await ended.wait()


async def test_a_websocket_has_two_channels_for_each_port_that_begin_with_it() -> None:
    closed = free_port()
    async with echoing() as port, serving(FakeTarget()) as server:
        asked = pb.PortForwardRequest(pod_sandbox_id="s1", port=[port, closed])
        async with websocket(server.port_forward_url(asked), V4) as connection:
            await connection.send_bytes(b"\0hi")
            received: dict[int, bytes] = {}
            async with asyncio.timeout(DEADLINE_S):
                while received.get(0, b"")[2:] != b"hi" or len(received.get(3, b"")) <= 2:
                    message = await connection.receive_bytes()
                    received[message[0]] = received.get(message[0], b"") + message[1:]
    for place, target in enumerate([port, port, closed, closed]):
        assert received[place][:2] == target.to_bytes(2, "little")
    assert f"port {closed}".encode() in received[3]


async def test_a_websocket_closes_when_all_its_ports_are_done() -> None:
    asked = pb.PortForwardRequest(pod_sandbox_id="s1", port=[free_port()])
    async with (
        serving(FakeTarget()) as server,
        websocket(server.port_forward_url(asked), V4) as connection,
    ):
        assert b"error forwarding" in by_channel(await messages(connection))[1]


@pytest.mark.parametrize("count", [0, 128])
async def test_a_websocket_for_no_ports_or_too_many_is_a_bad_request(count: int) -> None:
    asked = pb.PortForwardRequest(pod_sandbox_id="s1", port=[80] * count)
    async with serving(FakeTarget()) as server:
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            async with websocket(server.port_forward_url(asked), V4):
                pass
        assert raised.value.status == 400


async def test_a_websocket_in_base64_carries_more_ports_than_digits() -> None:
    asked = pb.PortForwardRequest(pod_sandbox_id="s1", port=[free_port()] * 6)
    async with (
        serving(FakeTarget()) as server,
        websocket(server.port_forward_url(asked), "v4.base64.channel.k8s.io") as connection,
    ):
        received = await messages(connection)
    assert {message[0] for message in received} == {chr(ord("0") + number) for number in range(12)}
