"""Two connections joined: half closes, silence, breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from moorage.wire.streaming.connection import Connection, Deadlines
from moorage.wire.streaming.pipe import join
from tests.wire.streaming.pairs import connected, read_all, read_exactly


class Joined:
    """client ⇄ (the pipe) ⇄ upstream."""

    def __init__(
        self, client: Connection, upstream: Connection, running: asyncio.Task[None]
    ) -> None:
        self.client = client
        self.upstream = upstream
        self.running = running


@asynccontextmanager
async def joined(**limits: float) -> AsyncIterator[Joined]:
    async with connected() as (client, inner), connected() as (outer, upstream):
        running = asyncio.create_task(join(inner, outer, Deadlines(**limits)))
        try:
            yield Joined(client, upstream, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_bytes_pass_both_ways() -> None:
    async with joined() as ends:
        await ends.client.write(b"up")
        assert await read_exactly(ends.upstream, 2) == b"up"
        await ends.upstream.write(b"down")
        assert await read_exactly(ends.client, 4) == b"down"


async def test_much_passes_in_order() -> None:
    data = bytes(range(256)) * 8192
    async with joined() as ends:
        writer = asyncio.create_task(ends.client.write(data))
        assert await read_exactly(ends.upstream, len(data)) == data
        await writer


async def test_the_clients_end_reaches_the_upstream_which_may_still_answer() -> None:
    async with joined() as ends:
        await ends.client.write(b"question")
        await ends.client.write_eof()
        assert await read_all(ends.upstream) == b"question"
        await ends.upstream.write(b"answer")
        assert await read_exactly(ends.client, 6) == b"answer"
        assert not ends.running.done()
        await ends.upstream.write_eof()
        await ends.running


async def test_the_upstreams_end_ends_it() -> None:
    async with joined() as ends:
        await ends.upstream.write(b"last words")
        await ends.upstream.write_eof()
        await ends.running
        assert await read_exactly(ends.client, 10) == b"last words"


async def test_silence_ends_it() -> None:
    async with joined(idle_s=0.1) as ends:
        await asyncio.wait_for(ends.running, 5)


async def test_what_passes_keeps_it_alive() -> None:
    async with joined(idle_s=0.4) as ends:
        for _ in range(6):
            await ends.client.write(b"x")
            await read_exactly(ends.upstream, 1)
            await asyncio.sleep(0.1)
        assert not ends.running.done()


async def test_after_the_clients_end_the_upstream_has_less_time() -> None:
    async with joined(idle_s=60, half_open_s=0.1) as ends:
        await ends.client.write_eof()
        await asyncio.wait_for(ends.running, 5)


async def test_broken_client_is_an_error() -> None:
    async with joined() as ends:
        await ends.client.write(b"x")
        await read_exactly(ends.upstream, 1)
        ends.client.abort()
        flood = asyncio.create_task(_flood(ends.upstream))
        with pytest.raises(OSError, match=r"lost|reset|pipe"):
            await asyncio.wait_for(ends.running, 5)
        flood.cancel()
        await asyncio.gather(flood, return_exceptions=True)


async def _flood(connection: Connection) -> None:
    while True:
        await connection.write(b"x" * 65536)
        await asyncio.sleep(0)
