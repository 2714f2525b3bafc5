"""Channel websocket, server side: messages belong to numbered channels.

    message = channel, then bytes     binary: one byte     base64 text: one digit
    255, n                            channel n ends (version 5 of the command protocol)

Each channel is a byte stream here, like a stream of SPDY. Source: apimachinery `wsstream`,
KEP-4006.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from aiohttp import web

from moorage.wire.streaming.deadlines import IdleTimer
from moorage.wire.streaming.inbox import Inbox
from moorage.wire.streaming.websocket import next_message

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
