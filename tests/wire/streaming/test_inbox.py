"""What arrives is read in order, and its end or error last."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.wire.streaming.inbox import Inbox
from tests.clocks import settle


async def test_what_was_fed_is_read_at_once_and_the_end_after_it() -> None:
    inbox = Inbox()
    inbox.feed(b"a")
    inbox.feed(b"b")
    inbox.end()
    assert await inbox.read() == b"ab"
    assert await inbox.read() == b""
    assert await inbox.read() == b""


async def test_an_error_comes_after_every_byte_and_stays() -> None:
    inbox = Inbox()
    inbox.feed(b"status 7")
    inbox.end(ConnectionResetError("reset"))
    assert await inbox.read() == b"status 7"
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            await inbox.read()


async def test_the_first_end_counts() -> None:
    inbox = Inbox()
    inbox.end()
    inbox.end(ConnectionResetError("late"))
    inbox.feed(b"late")
    assert await inbox.read() == b""


async def test_a_reader_waits_for_bytes() -> None:
    inbox = Inbox()
    reader = asyncio.create_task(inbox.read())
    await asyncio.sleep(0)
    assert not reader.done()
    inbox.feed(b"x")
    assert await reader == b"x"


async def test_it_is_full_until_it_is_read() -> None:
    inbox = Inbox(limit_bytes=3)
    fullness: list[bool] = []
    for piece in (b"ab", b"cd"):
        inbox.feed(piece)
        fullness.append(inbox.is_full)
    assert fullness == [False, True]
    waiter = asyncio.create_task(inbox.room())
    await asyncio.sleep(0)
    assert not waiter.done()
    assert await inbox.read() == b"abcd"
    await waiter
    inbox.feed(b"e")
    assert await inbox.read() == b"e"


async def test_waiter_for_room_is_woken_by_the_end() -> None:
    inbox = Inbox(limit_bytes=1)
    inbox.feed(b"x")
    waiter = asyncio.create_task(inbox.room())
    await asyncio.sleep(0)
    inbox.end()
    await waiter


async def test_a_reader_that_has_gone_leaves_nothing() -> None:
    inbox = Inbox()
    inbox.feed(b"x")
    inbox.discard()
    inbox.feed(b"y")
    assert inbox.has_ended
    assert await inbox.read() == b""


async def test_what_was_read_too_far_is_read_again_first() -> None:
    inbox = Inbox()
    inbox.feed(b"world")
    inbox.unread(b"hello ")
    inbox.unread(b"")
    assert await inbox.read() == b"hello world"


@given(st.lists(st.binary(max_size=5)))
def test_nothing_is_lost_or_turned(pieces: list[bytes]) -> None:
    async def fed_and_read() -> bytes:
        inbox = Inbox(limit_bytes=4)
        read = b""
        for piece in pieces:
            inbox.feed(piece)
            if inbox.is_full:
                read += await inbox.read()
        inbox.end()
        return read + await inbox.read()

    assert asyncio.run(fed_and_read()) == b"".join(pieces)


async def test_what_was_put_back_counts_towards_its_size() -> None:
    inbox = Inbox(limit_bytes=6)
    inbox.feed(b"world")
    inbox.unread(b"hello ")
    assert inbox.is_full
    assert await inbox.read() == b"hello world"
    assert not inbox.is_full


async def test_discarded_inbox_does_not_block_the_writer() -> None:
    inbox = Inbox(limit_bytes=1)
    inbox.feed(b"x")
    waiter = asyncio.create_task(inbox.room())
    await asyncio.sleep(0)
    inbox.discard()
    await waiter
    assert not inbox.is_full


async def test_bytes_after_an_error_are_dropped_and_the_error_stays() -> None:
    inbox = Inbox()
    inbox.end(ConnectionResetError("reset"))
    inbox.end()
    inbox.feed(b"late")
    with pytest.raises(ConnectionResetError, match="reset"):
        await inbox.read()


async def test_there_is_room_below_the_limit_and_none_at_it() -> None:
    inbox = Inbox(limit_bytes=3)
    async with asyncio.timeout(5):
        await inbox.room()
        inbox.feed(b"ab")
        await inbox.room()
    inbox.feed(b"c")
    assert inbox.is_full
    other = Inbox(limit_bytes=3)
    other.feed(b"abc")
    waiters = [asyncio.create_task(full.room()) for full in (inbox, other)]
    await settle()
    assert [waiter.done() for waiter in waiters] == [False, False]
    for full in (inbox, other):
        await full.read()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiters)
