"""Connector: connections to servers that may be hostile, for aiohttp's client.

The client asks for one answer at a time. A server that sends answers without end (`100 Continue`,
or whole ones while the connection waits in the pool) would fill memory, as the client queues all.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

MOST_ANSWERS: Final = 16
"""Answers that may wait on a connection: the one asked for, and what is sent before it."""


class _BoundedHandler(ResponseHandler):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if len(self) > MOST_ANSWERS:
            self._buffer.clear()
            self.set_exception(
                aiohttp.ClientPayloadError(f"the server sent more than {MOST_ANSWERS} answers")
            )
            if self.transport is not None:
                self.transport.abort()


class Connector(aiohttp.TCPConnector):
    """A TCPConnector that ends connections on which answers pile up."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory = self._new_handler  # type: ignore[assignment]

    def _new_handler(self) -> ResponseHandler:
        return _BoundedHandler(asyncio.get_running_loop())
