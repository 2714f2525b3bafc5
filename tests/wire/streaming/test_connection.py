"""Byte streams over real sockets: ends, errors, backpressure, closing."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from moorage.wire.streaming.connection import Connection, keep_alive
from tests.wire.streaming.pairs import connected, read_all, read_exactly

MEBIBYTE = 1 << 20


def reset(connection: Connection) -> None:
    """Close so that the peer gets a reset instead of an end."""
    sock = connection._transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.abort()


async def ended(connection: Connection) -> bool:
    """Whether the peer has ended, in order or by a reset."""
    try:
        return await connection.read() == b""
    except ConnectionResetError:
        return True


async def test_bytes_go_both_ways() -> None:
    async with connected() as (ours, theirs):
        await ours.write(b"ping")
        assert await read_exactly(theirs, 4) == b"ping"
        await theirs.write(b"pong")
        assert await read_exactly(ours, 4) == b"pong"


async def test_one_direction_ends_alone() -> None:
    async with connected() as (ours, theirs):
        assert ours.can_half_close
        await ours.write(b"all")
        await ours.write_eof()
        assert await read_all(theirs) == b"all"
        await theirs.write(b"answer")
        assert await read_exactly(ours, 6) == b"answer"


async def test_data_before_a_reset_is_read_before_the_error() -> None:
    async with connected() as (ours, theirs):
        await theirs.write(b"exit status")
        assert await read_exactly(ours, 1) == b"e"
        ours.unread(b"e")
        reset(theirs)
        await ours.closed
        assert await read_exactly(ours, 11) == b"exit status"
        with pytest.raises(OSError, match="reset"):
            await ours.read()


async def test_writing_to_a_lost_connection_is_an_error() -> None:
    async with connected() as (ours, theirs):
        reset(theirs)
        await ours.closed
        assert ours.is_closing
        assert not ours.can_half_close
        with pytest.raises(ConnectionResetError):
            await ours.write(b"x")
        await ours.write_eof()
        await ours.aclose()


async def test_a_writer_waits_for_a_reader() -> None:
    async with connected() as (ours, theirs):
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for _ in range(64):
                await ours.write(b"x" * MEBIBYTE)
                sent += MEBIBYTE

        writer = asyncio.create_task(flood())
        # No reader: socket buffers, the inbox and the write buffer fill, and then it stops.
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 32 * MEBIBYTE
        received = 0
        while received < 64 * MEBIBYTE:
            received += len(await theirs.read())
        await writer
        assert received == 64 * MEBIBYTE


async def test_a_writer_that_waits_learns_that_the_connection_is_lost() -> None:
    async with connected() as (ours, theirs):

        async def flood() -> None:
            while True:
                await ours.write(b"x" * MEBIBYTE)

        writer = asyncio.create_task(flood())
        await asyncio.sleep(0.05)
        theirs.abort()
        with pytest.raises(OSError, match=r"lost|reset|pipe"):
            await writer


async def test_closing_sends_what_is_left_even_over_unread_input() -> None:
    async with connected() as (ours, theirs):
        await theirs.write(b"never read")
        await ours.write(b"x" * MEBIBYTE)
        closing = asyncio.create_task(ours.aclose())
        assert len(await read_all(theirs)) == MEBIBYTE
        await theirs.aclose()
        await closing
        assert ours.is_closing


async def test_closing_does_not_wait_for_ever() -> None:
    async with connected() as (ours, theirs):
        await ours.write(b"x" * 16)
        await ours.aclose(within_s=0.05)
        assert ours.is_closing
        assert await read_all(theirs) == b"x" * 16


async def test_a_block_that_fails_drops_the_connection_at_once() -> None:
    async with connected() as (ours, theirs):
        with pytest.raises(KeyError):
            async with ours:
                raise KeyError
        assert ours.is_closing
        assert await ended(theirs)


async def test_closing_can_be_cancelled() -> None:
    async with connected() as (ours, _theirs):
        closing = asyncio.create_task(ours.aclose(within_s=60))
        await asyncio.sleep(0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await ours.closed


async def test_dead_peers_are_looked_for() -> None:
    async with connected() as (ours, _):
        own = ours._transport.get_extra_info("socket")
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [own.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [15, 15, 9]
        assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_unix_sockets_and_transports_without_a_socket_have_no_tcp_options() -> None:
    keep_alive(None)
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        keep_alive(ours)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_unix_connection(Connection, sock=ours)
        await connection.write(b"bytes")
        assert theirs.recv(16) == b"bytes"
        connection.abort()
        await connection.closed
