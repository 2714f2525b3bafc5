"""A session against a small server: streams, data, pings, resets, bad manners."""

from __future__ import annotations

import asyncio

import pytest

from moorage.wire.streaming.spdy import SpdyError, SpdySession
from moorage.wire.streaming.spdy.frames import Control, Data, FrameType, ping_frame
from tests.clocks import settle
from tests.wire.streaming.spdy.peer import FakeSpdyPeer, session


async def opened(ours: SpdySession, theirs: FakeSpdyPeer, *names: str) -> list[int]:
    async def open_all() -> list[int]:
        return [await ours.open({"streamType": name}) for name in names]

    numbers, by_name = await asyncio.gather(open_all(), theirs.agree_to_all(len(names)))
    assert by_name == dict(zip(names, numbers, strict=True))
    return numbers


async def test_streams_have_odd_numbers_and_their_headers() -> None:
    async with session() as (ours, theirs):
        assert await opened(ours, theirs, "error", "stdout", "stdin") == [1, 3, 5]


async def test_a_stream_counts_once_the_server_has_agreed() -> None:
    async with session() as (ours, theirs):
        opening = asyncio.create_task(ours.open({"streamType": "error"}))
        stream = await theirs.opened()
        await asyncio.sleep(0.01)
        assert not opening.done()
        await theirs.control(FrameType.SYN_REPLY, stream.number.to_bytes(4, "big"))
        assert await opening == stream.number


async def test_other_frames_of_a_stream_that_is_being_opened_are_passed_over() -> None:
    async with session() as (ours, theirs):
        opening = asyncio.create_task(ours.open({"streamType": "error"}))
        stream = (await theirs.opened()).number
        await theirs.control(FrameType.WINDOW_UPDATE, stream.to_bytes(4) + (1).to_bytes(4))
        await theirs.reset(stream + 2, 3)
        await theirs.control(FrameType.SYN_REPLY, (stream + 2).to_bytes(4))
        await settle(100)
        assert not opening.done()
        await theirs.control(FrameType.SYN_REPLY, stream.to_bytes(4))
        assert await opening == stream


async def test_refused_stream_is_reported_with_its_status() -> None:
    async with session() as (ours, theirs):
        opening = asyncio.create_task(ours.open({"streamType": "error"}))
        await theirs.reset((await theirs.opened()).number, 3)
        with pytest.raises(SpdyError, match="refused with status 3"):
            await opening


async def test_a_server_that_goes_while_a_stream_opens_is_an_error() -> None:
    async with session() as (ours, theirs):
        opening = asyncio.create_task(ours.open({"streamType": "error"}))
        await theirs.opened()
        await theirs.connection.write_eof()
        with pytest.raises(SpdyError, match="while a stream was being opened"):
            await opening


async def test_data_that_comes_before_all_streams_are_open_is_kept() -> None:
    async with session() as (ours, theirs):
        (first,) = await opened(ours, theirs, "stdout")
        await theirs.send(first, b"early")
        await opened(ours, theirs, "stderr")
        await theirs.send(first, b"late", is_last=True)
        await theirs.connection.write_eof()
        assert [data async for data in ours.data()] == [
            Data(first, b"early", is_last=False),
            Data(first, b"late", is_last=True),
        ]


async def test_bytes_and_their_end_reach_the_stream() -> None:
    async with session() as (ours, theirs):
        first, second = await opened(ours, theirs, "stdin", "resize")
        await ours.write(second, b"{}")
        await ours.write(first, b"hello ")
        await ours.write(first, b"world")
        await ours.end(first)
        assert await theirs.received(first) == b"hello world"


async def test_much_is_cut_into_frames_that_fit() -> None:
    payload = b"x" * (20 << 20)
    async with session() as (ours, theirs):
        (stream,) = await opened(ours, theirs, "stdin")

        async def send() -> None:
            await ours.write(stream, payload)
            await ours.end(stream)

        _, received = await asyncio.gather(send(), theirs.received(stream))
        assert received == payload


async def test_a_reset_ends_the_stream_alone() -> None:
    async with session() as (ours, theirs):
        first, second = await opened(ours, theirs, "stdout", "stderr")
        await theirs.reset(first)
        await theirs.send(second, b"on", is_last=True)
        await theirs.connection.write_eof()
        assert [data async for data in ours.data()] == [
            Data(first, b"", is_last=True),
            Data(second, b"on", is_last=True),
        ]


async def test_the_servers_pings_are_answered_and_its_other_frames_passed_over() -> None:
    async with session() as (ours, theirs):
        (stream,) = await opened(ours, theirs, "stdout")
        await theirs.connection.write(ping_frame(2) + ping_frame(1))
        await theirs.control(FrameType.SETTINGS, b"\0\0\0\0")
        await theirs.control(FrameType.WINDOW_UPDATE, b"\0\0\0\1\0\0\0\1")
        await theirs.control(99, b"?")
        await theirs.send(stream, b"x", is_last=True)
        await theirs.connection.write_eof()
        assert [data async for data in ours.data()] == [Data(stream, b"x", is_last=True)]
        answer = await theirs.frame()
        assert answer == Control(FrameType.PING, 0, b"\0\0\0\2")


@pytest.mark.parametrize(
    "wire",
    [
        b"\x80\x02\0\1\0\0\0\0",
        b"\x80\x03\0\x06\0\0\0\1\0",
        b"\x80\x03\0\x03\0\0\0\2\0\0",
    ],
    ids=["another version", "a short ping", "a short reset"],
)
async def test_bad_manners_are_a_broken_connection(wire: bytes) -> None:
    async with session() as (ours, theirs):
        await opened(ours, theirs, "stdout")
        await theirs.connection.write(wire)
        with pytest.raises(OSError, match=r"SPDY|short"):
            async for _ in ours.data():
                pass


async def test_a_server_that_floods_before_it_agrees_is_dropped() -> None:
    async with session() as (ours, theirs):
        opening = asyncio.create_task(ours.open({"streamType": "error"}))

        async def flood() -> None:
            while True:
                await theirs.send(7, b"x" * (1 << 20))

        flooding = asyncio.create_task(flood())
        with pytest.raises(SpdyError, match="before it has agreed"):
            await opening
        flooding.cancel()


async def test_nothing_is_read_while_no_reader_takes_data() -> None:
    async with session() as (ours, theirs):
        (stream,) = await opened(ours, theirs, "stdout")
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while sent < 64 << 20:
                await theirs.send(stream, b"x" * (1 << 20))
                sent += 1 << 20
            await theirs.send(stream, b"", is_last=True)

        flooding = asyncio.create_task(flood())
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 32 << 20
        received = 0
        async for data in ours.data():
            received += len(data.payload)
            if data.is_last:
                break
        await flooding
        assert received == 64 << 20
