"""Websockets of the server side, and the port-forward tunnel: one byte stream of messages.

Source: KEP-4006, `SPDY/3.1+portforward.k8s.io`.
"""

from __future__ import annotations

import aiohttp
from aiohttp import web

TUNNEL = "SPDY/3.1+portforward.k8s.io"
_CLOSE_S = 5.0
_MESSAGE_LIMIT_BYTES = 32 * 1024 * 1024
# Larger than any frame that the SPDY server writes.
_CHUNK_BYTES = 33 * 1024


def make_websocket(
    subprotocol: str, close_s: float = _CLOSE_S, *, largest_bytes: int = _MESSAGE_LIMIT_BYTES
) -> web.WebSocketResponse:
    """Return an unopened websocket for `subprotocol`, which is empty for a client that offers none.

    Closing it waits at most `close_s` for the client's close. A message of more than
    `largest_bytes` closes it with code 1009.
    """
    return web.WebSocketResponse(
        protocols=(subprotocol,) if subprotocol else (),
        compress=False,
        max_msg_size=largest_bytes,
        timeout=close_s,
    )


async def accept(
    request: web.BaseRequest,
    subprotocol: str,
    close_s: float = _CLOSE_S,
    *,
    largest_bytes: int = _MESSAGE_LIMIT_BYTES,
) -> web.WebSocketResponse:
    """Accept the upgrade to a websocket. The arguments are those of `make_websocket`."""
    websocket = make_websocket(subprotocol, close_s, largest_bytes=largest_bytes)
    await websocket.prepare(request)
    return websocket


async def next_message(websocket: web.WebSocketResponse) -> bytes | None:
    """Return the next binary or text message; None when the peer has closed or disconnected."""
    message = await websocket.receive()
    if message.type is aiohttp.WSMsgType.BINARY:
        return bytes(message.data)
    if message.type is aiohttp.WSMsgType.TEXT:
        return str(message.data).encode()
    return None


class Tunnel:
    """A websocket as a byte stream, for `pipe.join` and the SPDY server."""

    can_half_close = False

    def __init__(self, websocket: web.WebSocketResponse) -> None:
        self._websocket = websocket

    async def read(self) -> bytes:
        """Return the next message's bytes, at least one; empty once the peer has closed."""
        while True:
            message = await next_message(self._websocket)
            if message is None:
                return b""
            if message:
                return message

    async def write(self, data: bytes) -> None:
        """Send bytes in messages of at most 33 KiB. Raises OSError once disconnected."""
        for start in range(0, len(data), _CHUNK_BYTES):
            await self._websocket.send_bytes(data[start : start + _CHUNK_BYTES])

    async def write_eof(self) -> None:
        """Close the websocket: a tunnel has no half-close."""
        await self._websocket.close()
