"""Connection takeover from the HTTP server, after it has read the request's head.

    connection = await take_over(request, SPDY, lines)   # 101 is sent
    …
    return HandledResponse()                             # the handler's response object

Source: RFC 9110 §7.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from moorage.wire.streaming.connection import Connection
from moorage.wire.streaming.upgrade import switching_head


async def take_over(
    request: web.BaseRequest, protocol: str, lines: Iterable[tuple[str, str]]
) -> Connection:
    """Answer 101 with these header lines. Returns the connection, which the caller must close.

    Raises ConnectionResetError when the client has disconnected.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError("the client disconnected")
    former = request.protocol
    connection = Connection.on(transport)
    if (handler := asyncio.current_task()) is not None:
        # The HTTP server keeps its connection state until connection_lost, and some servers cancel
        # the handler then: so it is called after the handler.
        handler.add_done_callback(lambda _: former.connection_lost(None))
    await connection.write(switching_head(protocol, lines))
    return connection


class HandledResponse(web.StreamResponse):
    """A response that sends nothing: the HTTP server does not own the connection any more."""

    def __init__(self) -> None:
        super().__init__(status=101)
        self.force_close()

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        del request
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        del data
