"""Feeds of watches: where the frames of a watch come from.

A frame is encoded when its event happens, and shared by all watchers. The objects of a custom
resource with a conversion webhook are queued as they are stored instead, and converted when they
are sent: a slow webhook delays its own watchers, never a commit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from aiohttp import web

from moorage.apiserver.registry.kind import Kind, View
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.registry.watching import (
    ADDED,
    StoredEvent,
    Watch,
    WatchOptions,
    open_stored_watch,
    open_watch,
    seen_events,
)
from moorage.apiserver.storage import WatchCache
from moorage.wire.streaming.channel_socket import make_websocket, next_message
from moorage.wire.streaming.race import first_to_end
from moorage.wire.streaming.upgrade import offered_subprotocols

# Watch over websocket: one message per event, as browsers and dashboards read it.
#
# JSON is sent as text, protobuf as binary messages. Messages from the client are ignored; its close
# ends the watch. Source: apiserver `endpoints/handlers/watch.go` `HandleWS`, which accepts any
# subprotocol.

# Bounds a client message, which is buffered until complete and then ignored.
_LARGEST_IGNORED_BYTES = 4096
_LENGTH_BYTES = 4


class WatchSocket:
    """Sends the frames of a watch as websocket messages."""

    def __init__(self, request: web.BaseRequest, *, is_text: bool = True) -> None:
        self._request = request
        self._is_text = is_text
        # A client that offers subprotocols expects one in the response: the first.
        subprotocol = next(iter(offered_subprotocols(request)), "")
        self._websocket = make_websocket(subprotocol, largest_bytes=_LARGEST_IGNORED_BYTES)

    @property
    def response(self) -> web.StreamResponse:
        return self._websocket

    async def open(self) -> None:
        await self._websocket.prepare(self._request)

    async def carry(self, stream: Coroutine[Any, Any, None]) -> None:
        """Run the stream until its end or the client's close."""
        await first_to_end(stream, self._until_closed())

    async def write(self, frames: Iterable[bytes]) -> None:
        """Send each frame as a message. Raises ConnectionResetError if the client is gone."""
        for frame in frames:
            if self._is_text:
                await self._websocket.send_str(frame.decode())
            else:
                # A message has its own length.
                await self._websocket.send_bytes(frame[_LENGTH_BYTES:])

    async def close(self) -> None:
        await self._websocket.close()

    async def _until_closed(self) -> None:
        while await next_message(self._websocket) is not None:
            pass


_PIECE = 100

W = TypeVar("W")
Frame = Callable[[str, Stored], bytes]


class Feed(Protocol[W]):
    """Opens a watch and turns what it queues into frames."""

    @property
    def options(self) -> WatchOptions: ...

    @property
    def queues_frames(self) -> bool:
        """Return whether what is queued are the frames."""

    def open(self, cache: WatchCache[Stored], kind: Kind, namespace: str) -> Watch[W]:
        """Start the watch. Raises as `open_watch`."""

    def initial(self, watch: Watch[W]) -> AsyncIterator[Iterable[bytes]]:
        """Yield the frames of the initial objects. Raises StatusError."""

    async def frames(self, batch: Sequence[W]) -> Iterable[bytes]:
        """Return the frames of queued events. Raises StatusError."""


class PlainFeed(msgspec.Struct, frozen=True):
    """Queues the frames themselves.

    `form` is equal for feeds with the same frames, which may share a queue; None for one whose
    frames depend on those before.
    """

    options: WatchOptions
    frame: Frame
    form: Hashable = None

    @property
    def queues_frames(self) -> bool:
        return True

    def open(self, cache: WatchCache[Stored], kind: Kind, namespace: str) -> Watch[bytes]:
        return open_watch(cache, kind, namespace, self.options, self.frame, self.form)

    async def initial(self, watch: Watch[bytes]) -> AsyncIterator[Iterable[bytes]]:
        # One frame at a time: else each watcher would hold all of a large collection in memory.
        yield (self.frame(ADDED, item) for item in watch.initial)

    async def frames(self, batch: Sequence[bytes]) -> Iterable[bytes]:
        return batch


class ConvertedFeed(msgspec.Struct, frozen=True):
    """Queues objects as they are stored, and converts them when they are sent."""

    options: WatchOptions
    frame: Frame
    view: View

    @property
    def queues_frames(self) -> bool:
        return False

    def open(self, cache: WatchCache[Stored], kind: Kind, namespace: str) -> Watch[StoredEvent]:
        return open_stored_watch(cache, kind, namespace, self.options)

    async def initial(self, watch: Watch[StoredEvent]) -> AsyncIterator[Iterable[bytes]]:
        for start in range(0, len(watch.initial), _PIECE):
            items = watch.initial[start : start + _PIECE]
            yield await self.frames([StoredEvent(ADDED, item) for item in items])

    async def frames(self, batch: Sequence[StoredEvent]) -> Iterable[bytes]:
        events = await seen_events(self.view, self.options.selection, batch)
        return [self.frame(type_, item) for type_, item in events]
