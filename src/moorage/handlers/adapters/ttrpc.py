"""ttrpc: calls to a containerd shim, many at once over one connection.

    4 bytes length │ 4 bytes stream, odd │ 1 byte kind │ 1 byte flags │ protobuf   (big endian)

Each call is a stream of its own: a request, then a response with the same number. Streams of
data, which shims don't need, are refused. Source: containerd's ttrpc, "Protocol Specification".
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from moorage.handlers.adapters.generated import shim_pb2 as pb

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
    """A call that the other side refused. `code` is a gRPC status code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ConnectionLostError(Exception):
    """The other side has gone, said nonsense, or was never there; the text says which."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message on the wire."""

    stream: int
    kind: int
    content: bytes

    def encode(self) -> bytes:
        return _HEADER.pack(len(self.content), self.stream, self.kind, 0) + self.content


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next frame; None at the end. Raises ConnectionLostError when it is cut or too long."""
    try:
        header = await reader.readexactly(_HEADER.size)
        length, stream, kind, _flags = _HEADER.unpack(header)
        if length > MOST_BYTES:
            raise ConnectionLostError(f"a frame of {length} bytes, more than {MOST_BYTES}")
        return Frame(stream, kind, await reader.readexactly(length))
    except asyncio.IncompleteReadError as error:
        if error.partial or error.expected != _HEADER.size:
            raise ConnectionLostError("it ended amid a frame") from error
        return None
    except OSError as error:
        raise ConnectionLostError(error.strerror or str(error)) from error


class TtrpcClient:
    """A connection. Safe for many tasks at once; once lost, every call raises."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next_stream = 1
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._lost: ConnectionLostError | None = None

    @classmethod
    async def connect(cls, path: str, *, deadline_s: float) -> TtrpcClient:
        """A connection to the socket at a path. `run` must be started for its calls to end.

        Raises ConnectionLostError.
        """
        try:
            async with asyncio.timeout(deadline_s):
                reader, writer = await asyncio.open_unix_connection(path)
        except TimeoutError:
            raise ConnectionLostError(f"{path} takes no connection") from None
        except OSError as error:
            raise ConnectionLostError(f"{path}: {error.strerror or error}") from error
        return cls(reader, writer)

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    async def run(self) -> None:
        """Hand responses to their callers until the connection ends. For one task."""
        why = ConnectionLostError("the shim has ended")
        try:
            while frame := await read_frame(self._reader):
                if frame.kind != RESPONSE:
                    raise ConnectionLostError(f"a frame of kind {frame.kind} is no response")
                future = self._waiting.pop(frame.stream, None)
                # A call that was given up meanwhile has nobody who waits.
                if future is not None and not future.done():
                    future.set_result(frame.content)
        except ConnectionLostError as error:
            why = error
        finally:
            self._lose(why)

    async def call(
        self,
        service: str,
        method: str,
        request: Message,
        reply: type[_Reply],
        *,
        deadline_s: float | None,
    ) -> _Reply:
        """The reply to a call. No deadline is for calls that wait for an event.

        Raises TtrpcError, ConnectionLostError, and TimeoutError after `deadline_s`.
        """
        if self._lost is not None:
            raise self._lost
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
            self._writer.write(Frame(stream, REQUEST, content).encode())
            # The other side keeps the deadline too, and says which call it was: it goes first.
            async with asyncio.timeout(None if deadline_s is None else deadline_s + _GRACE_S):
                answer = await future
        finally:
            self._waiting.pop(stream, None)
        return _result(answer, reply)

    def close(self) -> None:
        """End the connection, and every call on it."""
        self._lose(ConnectionLostError("the connection was closed"))

    def _take_stream(self) -> int:
        stream = self._next_stream
        self._next_stream = stream + 2 if stream + 2 <= _LAST_STREAM else 1
        return stream

    def _lose(self, why: ConnectionLostError) -> None:
        if self._lost is not None:
            return
        self._lost = why
        self._writer.close()
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
        raise TtrpcError(_INTERNAL, f"its answer is no {reply.DESCRIPTOR.name}") from error
