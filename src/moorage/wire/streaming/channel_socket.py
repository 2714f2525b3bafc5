"""Channel websocket, server side: messages belong to numbered channels.

    message = channel, then bytes     binary: one byte     base64 text: one digit
    255, n                            channel n ends (version 5 of the command protocol)

Each channel is a byte stream here, like a stream of SPDY. Source: apimachinery `wsstream`,
KEP-4006.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from moorage.wire.streaming.connection import Deadlines, IdleTimer
from moorage.wire.streaming.inbox import Inbox
from moorage.wire.streaming.race import first_to_end
from moorage.wire.streaming.spdy import SpdySession

# Websockets of the server side, and the port-forward tunnel: one byte stream of messages.
#
# Source: KEP-4006, `SPDY/3.1+portforward.k8s.io`.

TUNNEL = "SPDY/3.1+portforward.k8s.io"
_CLOSE_S = 5.0
_MESSAGE_LIMIT_BYTES = 32 * 1024 * 1024
# Larger than any frame that the SPDY server writes.
_MESSAGE_BYTES = 33 * 1024


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
        for start in range(0, len(data), _MESSAGE_BYTES):
            await self._websocket.send_bytes(data[start : start + _MESSAGE_BYTES])

    async def write_eof(self) -> None:
        """Close the websocket: a tunnel has no half-close."""
        await self._websocket.close()


# Command stream bridge: a websocket client (v5) to an upstream in SPDY (v4).
#
#     websocket: first byte of a message is its channel: 0 stdin, 1 stdout, 2 stderr, 3 error,
#                4 resize, 255 "this channel ends" (the byte after it says which)
#     SPDY:      a stream each, named by its `streamtype` header
#
# Version 5 adds only the end of a single channel, which SPDY has as a flag; the status object on
# the error stream is the same. Source: KEP-4006, apimachinery `remotecommand` constants.

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


CLOSE = 255
_CHUNK_BYTES = 32 * 1024
_DIGIT_ZERO = ord("0")


class ChannelError(OSError):
    """A message that names no channel, or that the coding cannot decode."""


@dataclass(frozen=True, slots=True)
class Coding:
    """A message encoding. With `can_end` a client can close a single channel."""

    is_base64: bool = False
    can_end: bool = False

    def encode(self, channel: int, data: bytes) -> bytes | str:
        """Return a message, binary or text."""
        if self.is_base64:
            return f"{chr(_DIGIT_ZERO + channel)}{base64.b64encode(data).decode()}"
        return bytes((channel,)) + data

    def decode(self, message: bytes) -> tuple[int, bytes]:
        """Return the channel and the bytes of a message. Raises ChannelError for an invalid one."""
        if not message:
            raise ChannelError("a message is empty and names no channel")
        if not self.is_base64:
            return message[0], message[1:]
        try:
            return message[0] - _DIGIT_ZERO, base64.b64decode(message[1:], validate=True)
        except binascii.Error as error:
            raise ChannelError(f"a message is not base64: {error}") from error


class SocketChannel:
    """A channel. Reads and writes raise OSError once the client has disconnected."""

    can_half_close = False

    def __init__(self, socket: ChannelSocket, number: int) -> None:
        self._socket = socket
        self._number = number
        self.inbox = Inbox()

    async def read(self) -> bytes:
        """Return received bytes, at least one; empty once the client has closed the channel."""
        return await self.inbox.read()

    async def write(self, data: bytes) -> None:
        """Send bytes; an empty write sends an empty message. Raises OSError once disconnected."""
        for start in range(0, max(len(data), 1), _CHUNK_BYTES):
            await self._socket.send(self._number, data[start : start + _CHUNK_BYTES])

    async def write_eof(self) -> None:
        """Do nothing: a server cannot close one channel, only the websocket."""

    async def reset(self) -> None:
        """Ignore further input; the protocol has no message to notify the client."""
        self.inbox.discard()

    def discard(self) -> None:
        """Drop unread input and ignore what the client sends from now on."""
        self.inbox.discard()


class ChannelSocket:
    """A websocket and its channels, numbered from 0."""

    def __init__(
        self, websocket: web.WebSocketResponse, count: int, coding: Coding, timer: IdleTimer
    ) -> None:
        self._websocket = websocket
        self._coding = coding
        self._timer = timer
        self.channels = tuple(SocketChannel(self, number) for number in range(count))

    async def run(self) -> None:
        """Receive until the client closes or disconnects, then end the input of every channel.

        Blocks while a channel's inbox is full. Raises ChannelError for an invalid message.
        """
        error: OSError = ConnectionResetError("the client disconnected")
        try:
            while (message := await next_message(self._websocket)) is not None:
                self._timer.touch()
                await self._take(*self._coding.decode(message))
        except ChannelError as broken:
            error = broken
            raise
        finally:
            for channel in self.channels:
                channel.inbox.end(error)

    async def send(self, channel: int, data: bytes) -> None:
        """Send one message of a channel. Raises OSError when the client has disconnected."""
        message = self._coding.encode(channel, data)
        if isinstance(message, str):
            await self._websocket.send_str(message)
        else:
            await self._websocket.send_bytes(message)
        self._timer.touch()

    async def _take(self, number: int, data: bytes) -> None:
        if number == CLOSE and self._coding.can_end and data:
            if data[0] < len(self.channels):
                self.channels[data[0]].inbox.end()
        elif 0 <= number < len(self.channels):
            inbox = self.channels[number].inbox
            inbox.feed(data)
            if inbox.is_full:
                await inbox.room()
