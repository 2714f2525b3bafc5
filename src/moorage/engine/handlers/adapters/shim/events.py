"""Shim event socket. Only one event is used: out of memory.

Exits and starts are collected with blocking calls, which survive a restart where an event would be
lost. The socket is needed nonetheless: some shims refuse to start without it, and others retry each
event for seconds.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import cast

from google.protobuf.message import DecodeError

from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.ttrpc import (
    REQUEST,
    RESPONSE,
    ConnectionLostError,
    Frame,
    Framing,
)

_OUT_OF_MEMORY = "/tasks/oom"
_ANSWER = b""
"""A response without status and without payload."""


class ShimEvents:
    """Listening socket for events.

    Shims are answered until `close`; the path remains after that, so that a shim's connection is
    refused at once instead of waiting for the file.
    """

    def __init__(self, server: asyncio.Server, connections: set[asyncio.BaseTransport]) -> None:
        self._server = server
        self._connections = connections

    @classmethod
    async def listen(cls, path: Path, out_of_memory: Callable[[str], None]) -> ShimEvents:
        """Listen at a path; `out_of_memory` is called with the ID of the task. Raises OSError."""
        connections: set[asyncio.BaseTransport] = set()
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: _Reported(out_of_memory, connections), sock=_listen(path)
        )
        return cls(server, connections)

    async def close(self) -> None:
        """Stop listening and close the connections."""
        self._server.close()
        for connection in tuple(self._connections):
            connection.close()
        await self._server.wait_closed()


class _Reported(asyncio.Protocol):
    """Connection of one shim."""

    def __init__(
        self, out_of_memory: Callable[[str], None], connections: set[asyncio.BaseTransport]
    ) -> None:
        self._framing = Framing()
        self._out_of_memory = out_of_memory
        self._connections = connections
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._connections.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._transport is not None:
            self._connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        try:
            for frame in self._framing.feed(data):
                if frame.kind != REQUEST:
                    continue
                if task_id := _oom_task(frame.content):
                    self._out_of_memory(task_id)
                self._transport.write(Frame(frame.stream, RESPONSE, _ANSWER).encode())
        except ConnectionLostError:
            # The peer does not speak ttrpc; no response would help.
            self._transport.close()


def _listen(path: Path) -> socket.socket:
    """Return a socket at a path, accessible to this user only. Raises OSError."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o600)
    return listening


def _oom_task(content: bytes) -> str:
    """Return the ID of the task that ran out of memory; empty for any other event."""
    try:
        request = pb.Request.FromString(content)
        envelope = pb.ForwardRequest.FromString(request.payload).envelope
        if envelope.topic != _OUT_OF_MEMORY:
            return ""
        return pb.OutOfMemory.FromString(envelope.event.value).container_id
    except DecodeError:
        return ""
