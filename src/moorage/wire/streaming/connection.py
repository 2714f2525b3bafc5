"""Byte stream connection on an event loop's transport, below every streaming protocol.

Unlike asyncio's streams it delivers received bytes before an error: a container engine that closes
with unread input resets the connection right after the command's exit status, which must not be
lost. Reading pauses the transport when the bytes are not consumed; writing blocks while the peer
does not read.
"""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Self, cast

import msgspec

from moorage.api.clock import Clock, SystemClock, sleep_unless_set
from moorage.wire.streaming.inbox import Inbox

# Session deadlines, and the idle timer.
#
# An unused session holds a connection on every host that it passes; these limits end it. Source:
# the kubelet's and the CRI streaming library's defaults (30 s to create the streams, 4 h idle).


class Deadlines(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines in seconds.

    `half_open_s` limits the silence of one side after the other has closed, `drain_s` that of the
    output of a process that has exited.
    """

    dial_s: float = 30.0
    stream_creation_s: float = 30.0
    idle_s: float = 4 * 3600.0
    half_open_s: float = 60.0
    close_s: float = 5.0
    drain_s: float = 2.0


class IdleTimer:
    """Expires after `limit_s` without traffic. `touch` restarts it."""

    def __init__(self, limit_s: float, clock: Clock | None = None) -> None:
        self._limit_s = limit_s
        self._clock = clock or SystemClock()
        self._tightened = asyncio.Event()
        self.touch()

    @property
    def idle_s(self) -> float:
        """Return the seconds since the last activity."""
        return self._clock.monotonic() - self._last

    def touch(self) -> None:
        """Restart the timer: there was traffic."""
        self._last = self._clock.monotonic()

    def tighten(self, limit_s: float) -> None:
        """Restart the timer with a lower limit; a higher one is ignored."""
        self._limit_s = min(self._limit_s, limit_s)
        self.touch()
        self._tightened.set()

    async def expired(self) -> None:
        """Block until the limit has passed without traffic."""
        while (remaining := self._last + self._limit_s - self._clock.monotonic()) > 0:
            self._tightened.clear()
            await sleep_unless_set(self._clock, remaining, self._tightened)


_WRITE_HIGH_BYTES = 256 * 1024
_CLOSE_S = 5.0
# Dead peers are detected as fast as by Go's servers and clients.
_KEEPALIVE = (
    (socket.TCP_KEEPIDLE, 15),
    (socket.TCP_KEEPINTVL, 15),
    (socket.TCP_KEEPCNT, 9),
)


class Connection(asyncio.Protocol):
    """A byte stream. `async with` closes it, and aborts it when the block fails or is cancelled.

    The callbacks of `asyncio.Protocol` are for the event loop.
    """

    def __init__(self) -> None:
        self._inbox = Inbox()
        self._transport: asyncio.Transport
        self._is_reading_paused = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_lost = False
        self._is_over_tls = False
        self._peer_ended = asyncio.Event()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    def on(cls, transport: asyncio.Transport) -> Self:
        """Take over a transport from the protocol that served it, and return its connection."""
        connection = cls()
        transport.set_protocol(connection)
        connection.connection_made(transport)
        if not transport.is_reading():
            transport.resume_reading()
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
        await self.aclose()

    @property
    def can_half_close(self) -> bool:
        """Return whether this side can close its direction alone; never over TLS."""
        return not self._is_lost and self._transport.can_write_eof()

    @property
    def is_closing(self) -> bool:
        """Return whether the connection is lost or being closed."""
        return self._is_lost or self._transport.is_closing()

    async def read(self) -> bytes:
        """Return received bytes, at least one; empty at EOF. Blocks until there are any.

        Raises OSError when the connection broke, after all bytes received before.
        """
        data = await self._inbox.read()
        self._resume_reading()
        return data

    def unread(self, data: bytes) -> None:
        """Put back bytes in front of the unread ones."""
        self._inbox.unread(data)

    async def write(self, data: bytes) -> None:
        """Send bytes; blocks while the transport's buffer is full.

        Raises OSError when the connection is lost.
        """
        self.send(data)
        if not self._writable.is_set():
            await self.drain()

    def send(self, data: bytes) -> None:
        """Send without blocking, for small data that a cancellation must not truncate.

        Raises OSError when the connection is lost.
        """
        if self.is_closing:
            raise ConnectionResetError("the connection is lost")
        self._transport.write(data)

    async def drain(self) -> None:
        """Block until the transport has room. Raises OSError when the connection is lost."""
        await self._writable.wait()
        if self._is_lost:
            raise ConnectionResetError("the connection is lost")

    async def write_eof(self) -> None:
        """Close this direction, if the transport can (see `can_half_close`)."""
        if self.can_half_close and not self._transport.is_closing():
            self._transport.write_eof()

    async def aclose(self, within_s: float = _CLOSE_S) -> None:
        """Flush and close; aborts after `within_s` and on cancellation.

        If the transport can, this side half-closes first and reads until the peer closes too:
        closing with unread input makes the kernel send a reset, which can destroy bytes in flight.
        """
        self._inbox.discard()
        try:
            async with asyncio.timeout(within_s):
                if self.can_half_close:
                    self._resume_reading()
                    await self.write_eof()
                    await self._peer_ended.wait()
                if not self._is_lost:
                    self._transport.close()
                await asyncio.shield(self.closed)
        except TimeoutError:
            self.abort()
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close at once and drop unsent data."""
        self._inbox.discard()
        if not self._is_lost:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._is_over_tls = transport.get_extra_info("sslcontext") is not None
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_BYTES)
        keep_alive(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        self._inbox.feed(data)
        if self._inbox.is_full and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._inbox.end()
        self._peer_ended.set()
        # True keeps the sending direction open; a TLS transport closes both in any case.
        return not self._is_over_tls

    def connection_lost(self, error: Exception | None) -> None:
        """Fail pending reads and writes; called by the event loop."""
        self._is_lost = True
        self._inbox.end(error)
        self._writable.set()
        self._peer_ended.set()
        if not self.closed.done():
            self.closed.set_result(None)

    def _resume_reading(self) -> None:
        if self._is_reading_paused and not self._inbox.is_full:
            self._is_reading_paused = False
            if not self.is_closing:
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


def keep_alive(sock: socket.socket | None) -> None:
    """Have the kernel probe an idle TCP connection."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE:
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
