"""Command stream bridge: a websocket client (v5) to an upstream in SPDY (v4).

    websocket: first byte of a message is its channel: 0 stdin, 1 stdout, 2 stderr, 3 error,
               4 resize, 255 "this channel ends" (the byte after it says which)
    SPDY:      a stream each, named by its `streamtype` header

Version 5 adds only the end of a single channel, which SPDY has as a flag; the status object on the
error stream is the same. Source: KEP-4006, apimachinery `remotecommand` constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiohttp import web

from moorage.wire.streaming.deadlines import Deadlines, IdleTimer
from moorage.wire.streaming.race import first_to_end
from moorage.wire.streaming.spdy import SpdySession
from moorage.wire.streaming.websocket import next_message

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_NAMES = {_STDIN: "stdin", _STDOUT: "stdout", _STDERR: "stderr", _ERROR: "error", _RESIZE: "resize"}
# Engines accept the streams in any order, but every client opens the error stream first.
_ORDER = (_ERROR, _STDIN, _STDOUT, _STDERR, _RESIZE)


def wanted_channels(query: Mapping[str, str]) -> tuple[int, ...]:
    """Return the channels that the query of an exec or attach request selects (`stdin=true`, …).

    As in all queries of the API, any value but `0` and `false` means true.
    """

    def asks(name: str) -> bool:
        return name in query and query[name].lower() not in ("0", "false")

    is_terminal = asks("tty")
    requested = {
        _STDIN: asks("stdin"),
        _STDOUT: asks("stdout"),
        _STDERR: asks("stderr") and not is_terminal,
        _RESIZE: is_terminal,
        _ERROR: True,
    }
    return tuple(channel for channel in _ORDER if requested[channel])


async def open_streams(session: SpdySession, channels: Sequence[int]) -> dict[int, int]:
    """Open a stream for each channel. Returns the stream id by channel.

    Raises SpdyError when the upstream refuses one, and OSError when the connection breaks.
    """
    return {channel: await session.open({"streamtype": _NAMES[channel]}) for channel in channels}


async def bridge(
    websocket: web.WebSocketResponse,
    session: SpdySession,
    streams: Mapping[int, int],
    deadlines: Deadlines,
) -> None:
    """Copy both ways, then close the websocket.

    Blocks until the upstream's streams have ended, either side has disconnected, or there was no
    traffic for `deadlines.idle_s`. Raises OSError when a connection breaks.
    """
    timer = IdleTimer(deadlines.idle_s)
    await first_to_end(
        _upward(websocket, session, streams, timer),
        _downward(websocket, session, streams, timer),
        timer.expired(),
    )
    await websocket.close()


async def _upward(
    websocket: web.WebSocketResponse,
    session: SpdySession,
    streams: Mapping[int, int],
    timer: IdleTimer,
) -> None:
    ended: set[int] = set()
    while (message := await next_message(websocket)) is not None:
        timer.touch()
        if not message:
            continue
        channel, payload = message[0], message[1:]
        if channel == _CLOSE:
            channel = payload[0] if payload else _CLOSE
            if channel in streams and channel not in ended:
                ended.add(channel)
                await session.end(streams[channel])
        elif channel in (_STDIN, _RESIZE) and channel in streams and channel not in ended:
            await session.write(streams[channel], payload)


async def _downward(
    websocket: web.WebSocketResponse,
    session: SpdySession,
    streams: Mapping[int, int],
    timer: IdleTimer,
) -> None:
    channels = {
        stream: channel for channel, stream in streams.items() if channel not in (_STDIN, _RESIZE)
    }
    async for data in session.data():
        timer.touch()
        channel = channels.get(data.stream)
        if channel is None:
            continue
        if data.payload:
            await websocket.send_bytes(bytes((channel,)) + data.payload)
        if data.is_last:
            del channels[data.stream]
            if not channels:
                return
