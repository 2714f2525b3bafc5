"""Watch streams: one frame per change, many frames per write or one per websocket message.

A frame is a line of JSON, or a protobuf message after its length. It is encoded once per event,
watched version and form, and shared by the watchers. A stream ends at
its deadline, on server shutdown, on client disconnect, when the client reads too slowly, or when
the kind is no longer served.
Hot path: per watcher one append and a share of a write (bench/hotpaths.py). Source: API concepts
"Efficient detection of changes", "Watch bookmarks".
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec
from aiohttp import web

from moorage.api.clock import Clock
from moorage.api.errors import BadRequestError, ExpiredError, ServerTimeoutError, StatusError
from moorage.api.headers import STORE_HEADER
from moorage.apiserver.endpoints.call import Call
from moorage.apiserver.endpoints.negotiation import PARTIAL, TABLE, Representation
from moorage.apiserver.endpoints.options import int_option
from moorage.apiserver.endpoints.replies import JSON, STATUS
from moorage.apiserver.endpoints.representations import (
    decoded_object,
    head_of,
    include_object,
    message_of,
    metadata_json,
    shown_object,
)
from moorage.apiserver.endpoints.routing import is_true
from moorage.apiserver.endpoints.watch_feed import (
    ConvertedFeed,
    Feed,
    Frame,
    PlainFeed,
    WatchSocket,
)
from moorage.apiserver.registry.codec import RESOURCE, Codec, Media
from moorage.apiserver.registry.columns.table import bookmark_table, row_table
from moorage.apiserver.registry.kind import Kind, Obj, Served, View
from moorage.apiserver.registry.schema.protobuf_encoder import delimited, enveloped
from moorage.apiserver.registry.selection import select
from moorage.apiserver.registry.stored import Stored
from moorage.apiserver.registry.watching import Watch, WatchOptions, close_watch
from moorage.apiserver.storage import WatchCache, WatcherOverflowError
from moorage.wire.streaming.upgrade import WEBSOCKET, upgrade_of

_LAST_BOOKMARK_S = 2.0
_DEFAULT_TIMEOUT_S = (1800, 3600)
_LONGEST_S = 24 * 3600
_WRITE_BYTES = 64 * 1024
_MOST_FORMS = 64
"""Limit on the versions and forms whose last frame is kept."""
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


class WatchTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Time between bookmarks, and how long a client that reads too slowly keeps its connection."""

    bookmark_s: float = 60.0
    overflow_grace_s: float = 10.0


class EventSink(Protocol):
    """Destination of the frames of a watch: a response body or a websocket."""

    async def open(self) -> None:
        """Send the response head. Raises ConnectionResetError if the client is gone."""

    async def carry(self, stream: Coroutine[Any, Any, None]) -> None:
        """Run the stream until it ends or the client ends it."""

    async def write(self, frames: Iterable[bytes]) -> None:
        """Send frames. Raises ConnectionResetError if the client is gone."""

    async def close(self) -> None:
        """Send the end of the stream."""


class WatchStreams:
    """Serves watches from one cache."""

    def __init__(
        self,
        cache: WatchCache[Stored],
        codec: Codec,
        clock: Clock,
        identity: str,
        times: WatchTimes,
    ) -> None:
        self._cache = cache
        self._identity = identity
        self._codec = codec
        self._clock = clock
        self._bookmark_s, self._overflow_grace_s = times.bookmark_s, times.overflow_grace_s
        self._frames = _FrameMaker(codec)
        self._chunks = Chunks()

    async def serve(self, call: Call) -> web.StreamResponse:
        """Serve a watch until it ends. Raises StatusError when it is refused before it starts."""
        form = call.stream_form()
        options = options_of(call)
        asked_s = int_option(call.query, "timeoutSeconds")
        timeout_s = min(max(asked_s, 0), _LONGEST_S) or random.randint(*_DEFAULT_TIMEOUT_S)
        deadline = self._clock.monotonic() + timeout_s
        feed = self._feed(call, form, options)
        try:
            watch = feed.open(self._cache, call.kind, call.namespace)
        except (ExpiredError, ServerTimeoutError) as error:
            # Clients expect 200 and the error as an event in the stream.
            return await self._refuse(call, form, error)
        ending = _Ending(call.http.transport, self._overflow_grace_s)
        watch.watcher.on_overflow = ending.begin
        response, sink = self._sink(call, form)
        try:
            await sink.open()
            call.started(200)
            await sink.carry(self._stream(sink, call, watch, feed, form, deadline))
            await sink.close()
        except (ConnectionResetError, WatcherOverflowError):
            pass  # Disconnected by either side; the client lists and watches again.
        finally:
            ending.cancel()
            close_watch(self._cache, watch)
        return response

    def _sink(self, call: Call, form: Representation) -> tuple[web.StreamResponse, EventSink]:
        """Return the response and its sink: a websocket if the client requests one, else a body."""
        if upgrade_of(call.http) == WEBSOCKET:
            socket = WatchSocket(call.http, is_text=form.media is Media.JSON)
            socket.response.headers.update(call.headers or {})
            return socket.response, socket
        response = response_of(call, form)
        response.headers[STORE_HEADER] = self._identity
        return response, Body(response, call.http, self._chunks)

    def _feed(self, call: Call, form: Representation, options: WatchOptions) -> Feed[Any]:
        frame = self.frame_of(call, form)
        view = call.kind.view
        # Kinds are compared by identity: a definition that changes makes another one.
        same = None if form.as_ == TABLE else (id(call.kind), call.served.api_version, form)
        if view is None or form.as_ == PARTIAL:
            return PlainFeed(options, frame, same)
        if view.is_remote:
            return ConvertedFeed(options, frame, view)
        return PlainFeed(options, _seen_frames(frame, view, partial(self._error_frame, form)), same)

    async def _stream(
        self,
        sink: EventSink,
        call: Call,
        watch: Watch[Any],
        feed: Feed[Any],
        form: Representation,
        deadline: float,
    ) -> None:
        """Send events until the watch ends; one that cannot be converted ends it with an error."""
        try:
            await self._send(sink, call, watch, feed, form, deadline)
        except StatusError as error:
            await sink.write((self._error_frame(form, error),))

    async def _send(
        self,
        sink: EventSink,
        call: Call,
        watch: Watch[Any],
        feed: Feed[Any],
        form: Representation,
        deadline: float,
    ) -> None:
        async for frames in feed.initial(watch):
            await sink.write(frames)
        if watch.ends_initial_events:
            end = self.bookmark(call, form, watch.revision, is_end_of_initial=True)
            await sink.write((end,))
        watcher = watch.watcher
        if isinstance(sink, Body) and feed.queues_frames:
            watcher.send_by(sink, _WRITE_BYTES)
        now = self._clock.monotonic()
        last_bookmark = deadline - _LAST_BOOKMARK_S
        next_bookmark = min(now + self._bookmark_s, last_bookmark)
        while now < deadline:
            is_due = now >= next_bookmark
            # All queued events precede a bookmark, regardless of their size.
            batch = await watcher.next_batch(
                0.0 if is_due else min(next_bookmark, deadline) - now,
                None if is_due else _WRITE_BYTES,
            )
            revision = self._cache.revision
            await sink.write(await feed.frames(batch))
            if watcher.is_finished and not batch:
                return
            if is_due:
                if feed.options.allows_bookmarks:
                    await sink.write((self.bookmark(call, form, revision),))
                is_last = now >= last_bookmark
                next_bookmark = math.inf if is_last else min(now + self._bookmark_s, last_bookmark)
            now = self._clock.monotonic()

    async def _refuse(
        self, call: Call, form: Representation, error: StatusError
    ) -> web.StreamResponse:
        response, sink = self._sink(call, form)
        await sink.open()
        await sink.write((self._error_frame(form, error),))
        await sink.close()
        return response

    def frame_of(self, call: Call, form: Representation) -> Frame:
        """Return the function that makes the frames of a watch."""
        if form.as_ == TABLE:
            return self._table_frames(call, form)
        return self._frames.maker(call.kind, call.served, form)

    def _table_frames(self, call: Call, form: Representation) -> Frame:
        include = include_object(call.query)
        as_served = partial(shown_object, self._codec, call.kind, call.served)
        is_first = True

        def frame(type_: str, item: Stored) -> bytes:
            nonlocal is_first
            table = row_table(
                call.kind.printer,
                decoded_object(call.kind, call.served, item),
                now=time.time(),
                include=include,
                version=form.version,
                has_columns=is_first,
                as_served=as_served,
            )
            is_first = False
            return _framed(type_, msgspec.json.encode(table))

        return frame

    def bookmark(
        self, call: Call, form: Representation, revision: int, *, is_end_of_initial: bool = False
    ) -> bytes:
        """Return a bookmark's frame."""
        metadata: dict[str, object] = {"resourceVersion": str(revision)}
        if is_end_of_initial:
            metadata["annotations"] = _INITIAL_EVENTS_END
        if form.as_ == TABLE:
            table = bookmark_table(call.kind.printer, {"metadata": metadata}, version=form.version)
            return _framed("BOOKMARK", msgspec.json.encode(table))
        api_version, kind = head_of(call.kind, call.served, form)
        obj = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        return self._document_frame("BOOKMARK", form, RESOURCE.name, obj)

    def _error_frame(self, form: Representation, error: StatusError) -> bytes:
        return self._document_frame("ERROR", form, STATUS, error.to_object())

    def _document_frame(
        self, type_: str, form: Representation, type_name: str, document: Obj
    ) -> bytes:
        if form.media is Media.PROTOBUF:
            return _framed_message(type_, self._codec.to_protobuf(type_name, document))
        return _framed(type_, msgspec.json.encode(document))


class Body:
    """Sends frames in the response body, past the HTTP library, which would copy them twice."""

    def __init__(
        self, response: web.StreamResponse, request: web.BaseRequest, chunks: Chunks
    ) -> None:
        self._response = response
        self._request = request
        self._chunks = chunks

    def is_ready(self) -> bool:
        """Return whether the client is connected and has read most of its data."""
        protocol = self._request.protocol
        transport = protocol.transport
        return transport is not None and not protocol.writing_paused and not transport.is_closing()

    def send(self, frames: Sequence[bytes]) -> None:
        """Write frames, 64 KiB at most, without waiting for the client."""
        transport = self._request.transport
        if transport is not None:
            transport.write(self._chunks.of(frames))

    async def open(self) -> None:
        await self._response.prepare(self._request)

    async def carry(self, stream: Coroutine[Any, Any, None]) -> None:
        await stream

    async def write(self, frames: Iterable[bytes]) -> None:
        """Write frames in pieces, each once the client has read most of the previous ones."""
        if self._request.protocol.writing_paused:
            await self._request.writer.drain()
        piece: list[bytes] = []
        size = 0
        for frame in frames:
            if size + len(frame) > _WRITE_BYTES and piece:
                await self._put(self._chunks.of(piece))
                piece, size = [], 0
                # Other requests run between pieces, whose frames may have been made one by one.
                await asyncio.sleep(0)
            if len(frame) > _WRITE_BYTES:
                view = memoryview(frame)
                for start in range(0, len(frame), _WRITE_BYTES):
                    await self._put(_chunk(view[start : start + _WRITE_BYTES]))
            else:
                piece.append(frame)
                size += len(frame)
        if piece:
            await self._put(self._chunks.of(piece))

    async def _put(self, chunk: bytes) -> None:
        request = self._request
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        transport.write(chunk)
        if request.protocol.writing_paused:
            await request.writer.drain()

    async def close(self) -> None:
        await self._response.write_eof()


class Chunks:
    """Makes the chunks of bodies. Keeps the last one: the next watcher sends the same frames."""

    def __init__(self) -> None:
        self._frames: Sequence[bytes] = []
        self._chunk = b""

    def of(self, frames: Sequence[bytes]) -> bytes:
        """Return frames, 64 KiB at most, as one chunk. They must not be changed after this."""
        if frames is not self._frames and frames != self._frames:
            self._frames, self._chunk = frames, _chunk(b"".join(frames))
        return self._chunk


def _chunk(piece: bytes | memoryview) -> bytes:
    return b"".join((b"%x\r\n" % len(piece), piece, b"\r\n"))


class _Ending:
    """Aborts the connection of a watch whose client is too slow, if it does not end in time."""

    def __init__(self, transport: asyncio.Transport | None, grace_s: float) -> None:
        self._grace_s = grace_s
        self._transport = transport
        self._handle: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        if self._transport is not None:
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(self._grace_s, self._transport.abort)

    def cancel(self) -> None:
        # Keep-alive: the connection may serve other requests after this one.
        if self._handle is not None:
            self._handle.cancel()


class _FrameMaker:
    """Encodes frames. Caches the last one of each form: the next watcher needs the same."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._last: dict[tuple[str, Representation], tuple[Stored, str, Kind, bytes]] = {}

    def maker(self, kind: Kind, served: Served, form: Representation) -> Frame:
        """Return the function that makes the frames of a kind in a form."""
        encode = self._encoder(kind, served, form)
        place = (served.api_version, form)
        last = self._last

        def frame(type_: str, item: Stored) -> bytes:
            cached = last.get(place)
            if (
                cached is not None
                and cached[1] == type_
                # A definition that changes makes another kind, with other defaults.
                and cached[2] is kind
                and _is_same(cached[0], item)
            ):
                return cached[3]
            made = encode(type_, item)
            if cached is None and len(last) >= _MOST_FORMS:
                # Versions of definitions come and go.
                last.clear()
            last[place] = (item, type_, kind, made)
            return made

        return frame

    def _encoder(self, kind: Kind, served: Served, form: Representation) -> Frame:
        codec = self._codec
        if form.media is Media.PROTOBUF:
            head, message = head_of(kind, served, form), message_of(codec, served, form)
            return lambda type_, item: _framed_message(type_, enveloped(*head, message(item)))
        if form.as_:
            return lambda type_, item: _framed(type_, metadata_json(item, form.version))
        return lambda type_, item: _framed(type_, codec.encode(kind, served, item))


def _is_same(one: Stored, other: Stored) -> bool:
    """Return whether two items are one object at one revision: of one event they are mostly one."""
    return one is other or (one.revision == other.revision and one.key == other.key)


def _seen_frames(frame: Frame, view: View, failed: Callable[[StatusError], bytes]) -> Frame:
    """Return the frames of custom resources that are converted without a webhook."""

    def seen(type_: str, item: Stored) -> bytes:
        try:
            return frame(type_, view.see_now(item))
        except StatusError as error:
            return failed(error)

    return seen


def _framed(type_: str, body: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), body)


def _framed_message(type_: str, enveloped_object: bytes) -> bytes:
    """Return a WatchEvent after its length in four bytes."""
    event = delimited(1, type_.encode()) + delimited(2, delimited(1, enveloped_object))
    return len(event).to_bytes(4, "big") + event


def options_of(call: Call) -> WatchOptions:
    """Return what a request selects. Raises BadRequestError."""
    query = call.query
    field_selector = query.get("fieldSelector", "")
    if call.target.name:
        own = f"metadata.name={call.target.name}"
        field_selector = f"{field_selector},{own}" if field_selector else own
    sends = query.get("sendInitialEvents")
    if sends is not None and sends not in ("true", "false", "1", "0", ""):
        raise BadRequestError(f"sendInitialEvents: invalid value {sends!r}")
    return WatchOptions(
        selection=select(call.kind, call.served, query.get("labelSelector", ""), field_selector),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        allows_bookmarks=is_true(query, "allowWatchBookmarks"),
        has_continue=bool(query.get("continue")),
        sends_initial_events=None if sends is None else is_true(query, "sendInitialEvents"),
    )


def response_of(call: Call, form: Representation) -> web.StreamResponse:
    """Return a response with the head of a watch."""
    is_json = form.media is Media.JSON
    response = web.StreamResponse(
        headers={
            "Content-Type": JSON if is_json else f"{form.content_type};stream=watch",
            "Cache-Control": "no-cache, private",
            "Audit-Id": call.audit_id,
            **(call.headers or {}),
        }
    )
    if call.served.warning:
        response.headers["Warning"] = f'299 - "{call.served.warning}"'
    response.enable_chunked_encoding()
    return response
