"""Bytes that have arrived and wait for their reader, in order, with their end.

Connections, SPDY streams and websocket channels all receive through one of these: whoever feeds
it looks whether it is full and stops reading its own source then, which is the whole of the
backpressure. An error is the last thing the reader gets, after every byte that came before it.
"""

from __future__ import annotations

import asyncio
from collections import deque

LIMIT_BYTES = 256 * 1024


class Inbox:
    """One feeder, one reader. `limit_bytes` is when it counts as full; feeding still works then."""

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
        """Whether nothing more will come, though some may still be unread."""
        return self._has_ended

    @property
    def is_full(self) -> bool:
        return self._size >= self._limit

    def feed(self, data: bytes) -> None:
        """Add bytes. After the end they are dropped: nobody will read them."""
        if self._has_ended or not data:
            return
        self._pieces.append(data)
        self._size += len(data)
        if self.is_full:
            self._room.clear()
        self._arrived.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes; the reader then gets `error`, or the end. The first end counts."""
        if self._has_ended:
            return
        self._has_ended = True
        self._error = error
        self._arrived.set()
        self._room.set()

    def discard(self) -> None:
        """End it and forget what was not read: the reader has gone."""
        self._pieces.clear()
        self._size = 0
        self.end()
        self._room.set()

    def unread(self, data: bytes) -> None:
        """Put back what was read too far."""
        if data:
            self._pieces.appendleft(data)
            self._size += len(data)
            self._arrived.set()

    async def read(self) -> bytes:
        """All that is there, at least a byte; empty at the end. Raises the error it ended with."""
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
        """Return when it is no longer full, or has ended."""
        await self._room.wait()
