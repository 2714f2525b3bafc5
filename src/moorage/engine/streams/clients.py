"""Client channels of a command, over SPDY or a websocket.

SPDY         the client opens a stream for each channel, in any order
websocket    channels are numbers and exist from the start
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from moorage.engine.streams.command import Channels
from moorage.engine.streams.requests import Dialect
from moorage.wire.cri import pb
from moorage.wire.streaming.channel_socket import ChannelSocket, Coding
from moorage.wire.streaming.spdy import SpdyStream

CommandRequest = pb.ExecRequest | pb.AttachRequest

# The index is the channel's number in the websocket protocols.
_NAMES = ("stdin", "stdout", "stderr", "error", "resize")
_READ = ("stdin", "resize")
SOCKET_CHANNELS = len(_NAMES)


def channel_names(request: CommandRequest, dialect: Dialect) -> tuple[str, ...]:
    """Return the channels that a request needs, in the order of their numbers."""
    channels = {
        "stdin": request.stdin,
        "stdout": request.stdout,
        "stderr": request.stderr,
        "error": True,
        "resize": request.tty and dialect.has_resize,
    }
    return tuple(name for name in _NAMES if channels[name])


class Gathering:
    """Collects the streams that a SPDY client opens."""

    def __init__(self, names: Sequence[str]) -> None:
        self._missing = set(names)
        self._streams: dict[str, SpdyStream] = {}
        self._is_whole = asyncio.Event()

    def admit(self, stream: SpdyStream) -> bool:
        """Admit a stream that the client opens.

        Returns False for one that the request does not need, and for the second of a name.
        """
        name = stream.headers.get("streamtype", "")
        if name not in self._missing:
            return False
        self._missing.remove(name)
        self._streams[name] = stream
        if name not in _READ:
            stream.discard()
        if not self._missing:
            self._is_whole.set()
        return True

    async def channels(self, dialect: Dialect) -> Channels:
        """Return all channels. Blocks until the client has opened them."""
        await self._is_whole.wait()
        return Channels(**self._streams, has_json_status=dialect.has_json_status)


def coding(dialect: Dialect) -> Coding:
    """Return the message coding of a dialect."""
    return Coding(is_base64=dialect.is_base64, can_end=dialect.can_end)


async def greeted(socket: ChannelSocket, names: Sequence[str], dialect: Dialect) -> Channels:
    """Announce a websocket's channels to the client with an empty message, and return them.

    Raises OSError when the client has disconnected.
    """
    by_name = dict(zip(_NAMES, socket.channels, strict=True))
    for name, channel in by_name.items():
        if name not in _READ or name not in names:
            channel.discard()
    await next(by_name[name] for name in names if name not in _READ).write(b"")
    chosen = {name: by_name[name] for name in names}
    return Channels(**chosen, has_json_status=dialect.has_json_status)
