"""ttrpc client: concurrent calls to a containerd shim over one connection.

    4 bytes length │ 4 bytes stream, odd │ 1 byte kind │ 1 byte flags │ protobuf   (big endian)

Each call is a stream of its own: a request, then a response with the same number. Data streams,
which shims do not use, are refused. Source: containerd's ttrpc, "Protocol Specification".
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

from google.protobuf.message import DecodeError, Message

from moorage.engine.handlers.adapters.generated import shim_pb2 as pb

REQUEST = 1
RESPONSE = 2
MOST_BYTES = 4 * 1024 * 1024
NOT_FOUND = 5
UNIMPLEMENTED = 12
_INTERNAL = 13

_HEADER = struct.Struct(">IIBB")
_GRACE_S = 1.0
_LAST_STREAM = 2**32 - 1

_Reply = TypeVar("_Reply", bound=Message)


class TtrpcError(Exception):
    """The peer returned an error. `code` is a gRPC status code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConnectionLostError(Exception):
    """The connection failed, was closed, or the peer broke the protocol; the text says which."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message on the wire."""

    stream: int
    kind: int
    content: bytes

    def encode(self) -> bytes:
        """Return the frame with its header."""
        return _HEADER.pack(len(self.content), self.stream, self.kind, 0) + self.content


class Framing:
    """Decoder that splits a byte stream into frames."""

    def __init__(self) -> None:
        self._content = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes and yield the complete frames.

        Raises ConnectionLostError for a frame that is too long.
        """
        self._content += data
        while len(self._content) >= _HEADER.size:
            length, stream, kind, _flags = _HEADER.unpack_from(self._content)
            if length > MOST_BYTES:
                raise ConnectionLostError(
                    f"frame of {length} bytes exceeds the limit of {MOST_BYTES}"
                )
            end = _HEADER.size + length
            if len(self._content) < end:
                return
            content = bytes(self._content[_HEADER.size : end])
            del self._content[:end]
            yield Frame(stream, kind, content)


class TtrpcClient(asyncio.Protocol):
    """A ttrpc connection. Safe for concurrent use; once lost, every call raises."""

    def __init__(self) -> None:
        self._framing = Framing()
        self._transport: asyncio.WriteTransport | None = None
        self._next_stream = 1
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._lost: ConnectionLostError | None = None
        self.lost = asyncio.Event()
        """Set when the connection has ended."""

    @classmethod
    async def connect(cls, path: str, *, deadline_s: float) -> TtrpcClient:
        """Connect to the socket at a path. Raises ConnectionLostError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(deadline_s):
                _transport, client = await loop.create_unix_connection(cls, path)
        except TimeoutError:
            raise ConnectionLostError(f"{path} does not accept a connection") from None
        except OSError as error:
            raise ConnectionLostError(f"{path}: {error.strerror or error}") from error
        return client

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse received frames and complete the calls they answer. Source: ttrpc PROTOCOL.md."""
        try:
            for frame in self._framing.feed(data):
                if frame.kind != RESPONSE:
                    raise ConnectionLostError(f"frame of type {frame.kind} is not a response")
                future = self._waiting.pop(frame.stream, None)
                # None for a call that was cancelled or timed out.
                if future is not None and not future.done():
                    future.set_result(frame.content)
        except ConnectionLostError as error:
            self._lose(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(ConnectionLostError(f"the shim has exited{f': {exc}' if exc else ''}"))

    async def call(
        self,
        service: str,
        method: str,
        request: Message,
        reply: type[_Reply],
        *,
        deadline_s: float | None,
    ) -> _Reply:
        """Call a method and return its reply.

        `deadline_s` is None for calls that wait for an event.

        Raises TtrpcError, ConnectionLostError, and TimeoutError after `deadline_s`.
        """
        if self._lost is not None or self._transport is None:
            raise self._lost or ConnectionLostError("not connected")
        stream = self._take_stream()
        content = pb.Request(
            service=service,
            method=method,
            payload=request.SerializeToString(),
            timeout_nano=int((deadline_s or 0) * 1e9),
        ).SerializeToString()
        future = asyncio.get_running_loop().create_future()
        self._waiting[stream] = future
        try:
            self._transport.write(Frame(stream, REQUEST, content).encode())
            # The peer enforces the deadline too, and its error names the call: let it come first.
            async with asyncio.timeout(None if deadline_s is None else deadline_s + _GRACE_S):
                answer = await future
        finally:
            self._waiting.pop(stream, None)
        return _result(answer, reply)

    def close(self) -> None:
        """Close the connection; every pending call raises ConnectionLostError."""
        self._lose(ConnectionLostError("the connection was closed"))

    def _take_stream(self) -> int:
        stream = self._next_stream
        self._next_stream = stream + 2 if stream + 2 <= _LAST_STREAM else 1
        return stream

    def _lose(self, why: ConnectionLostError) -> None:
        if self._lost is not None:
            return
        self._lost = why
        self.lost.set()
        if self._transport is not None:
            self._transport.close()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(why)
        self._waiting.clear()


def _result(answer: bytes, reply: type[_Reply]) -> _Reply:
    try:
        response = pb.Response.FromString(answer)
        if response.status.code:
            raise TtrpcError(response.status.code, response.status.message)
        return reply.FromString(response.payload)
    except DecodeError as error:
        raise TtrpcError(_INTERNAL, f"its response is not a {reply.DESCRIPTOR.name}") from error
