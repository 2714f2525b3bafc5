"""Unfinished websocket messages: a limit on their memory.

The HTTP library buffers a message until its last byte, up to its limit for one. Thousands of
clients that each send all but the last byte would exhaust memory, so the bytes of unfinished
messages are taken from a budget; short ones are free. All that depends on the internals of
aiohttp's `WebSocketResponse` is in this file. Hot path: a few steps for each read of a socket.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from aiohttp import WebSocketError, WSCloseCode, WSMsgType, web

from moorage.wire.serving import Budget

FREE_BYTES = 64 * 1024
"""Bytes of each unfinished message that are not counted."""

_DATA = (WSMsgType.BINARY, WSMsgType.TEXT)


class Unfinished:
    """Limits the unfinished messages of one server's websockets.

    The library needs up to two bytes of memory for each byte counted.
    """

    def __init__(
        self, *, total_bytes: int = 128 * 1024 * 1024, per_user_bytes: int = 64 * 1024 * 1024
    ) -> None:
        self._budget = Budget(total=total_bytes, per_user=per_user_bytes)

    @property
    def held(self) -> int:
        """Return the number of bytes that are counted now."""
        return self._budget.held

    def bound(self, request: web.BaseRequest, websocket: web.WebSocketResponse, user: str) -> None:
        """Count the bytes received on a websocket that was just prepared, until it is lost.

        `user` is the budget's user, "" for one without limits. A message for which there is no room
        closes the websocket with code 1009.
        """
        connection: Any = request.protocol
        if connection._payload_parser is not None:
            parser = CountingParser(connection._payload_parser, websocket, self._budget, user)
            connection._payload_parser = parser


class CountingParser:
    """Wraps the library's parser of one websocket; counts the unfinished message's bytes."""

    def __init__(
        self, parser: Any, websocket: web.WebSocketResponse, budget: Budget, user: str
    ) -> None:
        self._parser = parser
        self._queue: Any = websocket._reader
        self._budget = budget
        self._user = user
        self._unfinished = 0
        self._held = 0
        self._has_failed = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Parse received bytes; called by the connection."""
        if self._has_failed:
            return True, b""
        whole = len(self._queue._buffer)
        result: tuple[bool, bytes] = self._parser.feed_data(data)
        # The queue is not read meanwhile. A control frame may arrive within a message.
        if any(message.type in _DATA for message, _ in islice(self._queue._buffer, whole, None)):
            self._give_back()
            return result
        self._unfinished += len(data)
        more = self._unfinished - FREE_BYTES - self._held
        if more > 0:
            if self._budget.take(self._user, more):
                self._held += more
            else:
                self._has_failed = True
                self._queue.set_exception(
                    WebSocketError(
                        WSCloseCode.MESSAGE_TOO_BIG, "too many bytes of messages are unfinished"
                    )
                )
                return True, b""
        return result

    def feed_eof(self) -> None:
        """Handle EOF; called by the connection when it is lost."""
        self._parser.feed_eof()
        self._give_back()

    def _give_back(self) -> None:
        self._budget.give_back(self._user, self._held)
        self._unfinished = self._held = 0
