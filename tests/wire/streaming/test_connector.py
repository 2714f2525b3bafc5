"""The connector, against servers that send more than was asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from moorage.wire.streaming.dial import Connector

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def answering(first: bytes, again: bytes = b"") -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A server's URL; it sends `first`, then `again` without end. The event: it is cut off."""
    is_over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(first)
            await writer.drain()
            while again:
                writer.write(again)
                await writer.drain()
            await reader.read()
        is_over.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", is_over


async def test_interim_answers_come_before_the_answer() -> None:
    async with (
        answering(CONTINUE * 3 + ANSWER) as (url, _),
        aiohttp.ClientSession(connector=Connector()) as http,
        http.get(url) as answer,
    ):
        assert await answer.text() == "ok"


async def test_interim_answers_without_end_break_the_connection() -> None:
    async with (
        answering(b"", CONTINUE * 1000) as (url, is_over),
        aiohttp.ClientSession(connector=Connector()) as http,
    ):
        async with asyncio.timeout(20):
            with pytest.raises(aiohttp.ClientError, match="more than 16 answers"):
                await http.get(url)
            await is_over.wait()


async def test_unsolicited_answers_break_the_connection_in_the_pool() -> None:
    async with (
        answering(ANSWER, ANSWER * 1000) as (url, is_over),
        aiohttp.ClientSession(connector=Connector()) as http,
    ):
        async with asyncio.timeout(20):
            with contextlib.suppress(aiohttp.ClientError):
                async with http.get(url) as answer:
                    await answer.text()
            await is_over.wait()
