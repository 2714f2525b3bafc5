"""Connector of the client: a connection that is being opened is not cut off half-way.

uvloop's `create_connection` closes the socket under the TLS protocol when it is cancelled between
the TCP connection and the handshake. If the server's answer has arrived by then, the protocol
completes the handshake on the closed socket, and the loop logs "Fatal error on SSL protocol … the
handler is closed". So only what waits for a connection is cancelled here, and the connection is
closed once it is open.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

OPENING_S = 10.0
"""How long opening a connection may take, TLS handshake included."""


class Connector(aiohttp.TCPConnector):
    """A connector that lets each opening end, within 10 s, though what waits for it is cancelled.

    `close` cancels those that are under way.
    """

    def __init__(self, *, opening_s: float = OPENING_S, **options: Any) -> None:
        self._opening_s = opening_s
        super().__init__(**options)
        self._openings: set[asyncio.Task[ResponseHandler]] = set()

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> ResponseHandler:
        opening = asyncio.create_task(self._opened(req, traces, timeout))
        self._openings.add(opening)
        opening.add_done_callback(self._openings.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unused)
            raise

    async def _opened(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
    ) -> ResponseHandler:
        async with asyncio.timeout(self._opening_s):
            return await super()._create_connection(req, traces, timeout)

    async def close(self, *, abort_ssl: bool = False) -> None:
        openings = list(self._openings)
        for opening in openings:
            opening.cancel()
        await asyncio.gather(*openings, return_exceptions=True)
        await super().close(abort_ssl=abort_ssl)


def _close_unused(opening: asyncio.Task[ResponseHandler]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
