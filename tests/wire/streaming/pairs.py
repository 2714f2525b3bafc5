"""Two ends of one loopback connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorage.wire.streaming.connection import Connection

HOST = "127.0.0.1"


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Connection, Connection]]:
    """A connection's two ends; what the test leaves open is dropped."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[Connection] = loop.create_future()

    class Accepted(Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            accepted.set_result(self)

    server = await loop.create_server(Accepted, HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, ours = await loop.create_connection(Connection, HOST, port)
        theirs = await accepted
        try:
            yield ours, theirs
        finally:
            ours.abort()
            theirs.abort()


async def read_exactly(connection: Connection, count: int) -> bytes:
    """That many bytes, or fewer when the peer ends."""
    data = b""
    while len(data) < count and (more := await connection.read()):
        data += more
    connection.unread(data[count:])
    return data[:count]


async def read_all(connection: Connection) -> bytes:
    """Everything up to the peer's end."""
    data = b""
    while more := await connection.read():
        data += more
    return data
