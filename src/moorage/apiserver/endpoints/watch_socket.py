"""Watch over websocket: one message per event, as browsers and dashboards read it.

JSON is sent as text, protobuf as binary messages. Messages from the client are ignored; its close
ends the watch. Source: apiserver `endpoints/handlers/watch.go` `HandleWS`, which accepts any
subprotocol.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from aiohttp import web

from moorage.wire.streaming.race import first_to_end
from moorage.wire.streaming.upgrade import offered_subprotocols
from moorage.wire.streaming.websocket import make_websocket, next_message

# Bounds a client message, which is buffered until complete and then ignored.
_LARGEST_IGNORED_BYTES = 4096
_LENGTH_BYTES = 4


class WatchSocket:
    """Sends the frames of a watch as websocket messages."""

    def __init__(self, request: web.BaseRequest, *, is_text: bool = True) -> None:
        self._request = request
        self._is_text = is_text
        # A client that offers subprotocols expects one in the response: the first.
        subprotocol = next(iter(offered_subprotocols(request)), "")
        self._websocket = make_websocket(subprotocol, largest_bytes=_LARGEST_IGNORED_BYTES)

    @property
    def response(self) -> web.StreamResponse:
        return self._websocket

    async def open(self) -> None:
        await self._websocket.prepare(self._request)

    async def carry(self, stream: Coroutine[Any, Any, None]) -> None:
        """Run the stream until its end or the client's close."""
        await first_to_end(stream, self._until_closed())

    async def write(self, frames: Iterable[bytes]) -> None:
        """Send each frame as a message. Raises ConnectionResetError if the client is gone."""
        for frame in frames:
            if self._is_text:
                await self._websocket.send_str(frame.decode())
            else:
                # A message has its own length.
                await self._websocket.send_bytes(frame[_LENGTH_BYTES:])

    async def close(self) -> None:
        await self._websocket.close()

    async def _until_closed(self) -> None:
        while await next_message(self._websocket) is not None:
            pass
