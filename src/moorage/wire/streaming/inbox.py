"""Inbox: a buffer of received bytes, in order, with EOF or an error at the end.

Connections, SPDY streams and websocket channels receive through one. The feeder stops reading
its source while the inbox is full, which is the backpressure. The reader gets an error only after
every byte before it.
"""

from __future__ import annotations

import asyncio
from collections import deque

LIMIT_BYTES = 256 * 1024


class Inbox:
    """A buffer for one feeder and one reader.

    It is full from `limit_bytes` on, but still accepts bytes.
    """

    __slots__ = ("_arrived", "_error", "_has_ended", "_limit", "_pieces", "_room", "_size")

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._has_ended = False
        self._error: Exception | None = None
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def has_ended(self) -> bool:
        """Return whether the input has ended; bytes may still be unread."""
        return self._has_ended

    @property
    def is_full(self) -> bool:
        """Return whether the feeder should stop reading its source."""
        return self._size >= self._limit

    def feed(self, data: bytes) -> None:
        """Add bytes. Drops them after the end of the input."""
        if self._has_ended or not data:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self.is_full:
            self._room.clear()
        self._arrived.set()

    def end(self, error: Exception | None = None) -> None:
        """End the input; the reader then gets `error`, or EOF. Only the first call counts."""
        if self._has_ended:
            return
        self._has_ended = True
        self._error = error
        self._arrived.set()
        self._room.set()

    def discard(self) -> None:
        """End the input and drop unread bytes: there is no reader any more."""
        self._pieces.clear()
        self._size = 0
        self.end()
        self._room.set()

    def unread(self, data: bytes) -> None:
        """Put back bytes in front of the unread ones."""
        if data:
            self._pieces.appendleft(data)
            self._size += len(data)
            self._arrived.set()

    async def read(self) -> bytes:
        """Return all unread bytes, at least one; empty at EOF. Blocks until there are any.

        Raises the error passed to `end`, after all bytes before it.
        """
        while not self._pieces:
            if self._has_ended:
                if self._error is not None:
                    raise self._error
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._room.set()
        return data

    async def room(self) -> None:
        """Block until the inbox is not full, or has ended."""
        await self._room.wait()
