"""Pipe: copies between two connections in both directions.

Source: the kubelet's and the API server's upgrade-aware proxies.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from moorage.wire.streaming.connection import Connection, Deadlines, IdleTimer
from moorage.wire.streaming.race import first_to_end


class ByteStream(Protocol):
    """A stream to join: a connection, a SPDY stream, or a websocket that carries bytes.

    `read` returns at least one byte, and none at EOF; `write` blocks while the peer does not read;
    both raise OSError when the connection is lost. `write_eof` closes this direction as far
    as the stream can.
    """

    @property
    def can_half_close(self) -> bool: ...

    async def read(self) -> bytes: ...

    async def write(self, data: bytes) -> None: ...

    async def write_eof(self) -> None: ...


async def join(client: ByteStream, upstream: Connection, deadlines: Deadlines) -> None:
    """Copy both ways until the upstream closes, the client disconnects, or the idle limit passes.

    The client's EOF is forwarded if the upstream supports half-close; the upstream then has
    `half_open_s` of silence to finish. Raises OSError when a connection breaks.
    """
    timer = IdleTimer(deadlines.idle_s)

    async def upward() -> None:
        await _copy(client, upstream, timer)
        if not upstream.can_half_close:
            return
        await upstream.write_eof()
        timer.tighten(deadlines.half_open_s)
        # Do not return: only the upstream's EOF or the timer ends the copying now.
        await asyncio.get_running_loop().create_future()

    await first_to_end(
        upward(),
        _copy(upstream, client, timer),
        timer.expired(),
    )


async def _copy(source: ByteStream, target: ByteStream, timer: IdleTimer) -> None:
    while data := await source.read():
        timer.touch()
        await target.write(data)
