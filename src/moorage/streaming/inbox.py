"""Inbox: received bytes that wait for their reader, in order, with EOF or an error.

Connections, SPDY streams and websocket channels all receive through one. The feeder stops reading
its source while the inbox is full, which is the backpressure. The reader gets an error only after
every byte before it.
"""

from __future__ import annotations

import asyncio
from collections import deque

LIMIT_BYTES = 256 * 1024


class Inbox:
    """A buffer for one feeder and one reader. It is full from `limit_bytes` on; feeding still
    works.
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
        """Whether no more bytes will come, though some may be unread."""
        return self._has_ended

    @property
    def is_full(self) -> bool:
        return self._size >= self._limit

    def feed(self, data: bytes) -> None:
        """Add bytes; dropped after the end."""
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
        """End the input and drop unread bytes: the reader is gone."""
        self._pieces.clear()
        self._size = 0
        self.end()
        self._room.set()

    def unread(self, data: bytes) -> None:
        """Put back bytes that were read too far."""
        if data:
            self._pieces.appendleft(data)
            self._size += len(data)
            self._arrived.set()

    async def read(self) -> bytes:
        """Return all bytes, at least one; empty at EOF. Raises the error of `end`."""
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
        """Block until it is not full, or has ended."""
        await self._room.wait()
