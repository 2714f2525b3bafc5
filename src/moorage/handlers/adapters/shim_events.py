"""The socket at which shims report events. Of these, one counts: that memory ran out.

Exits and starts are learnt by waiting, which survives a restart where an event would be lost. But
somebody has to listen: some shims refuse to start without, and others try each event for seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from google.protobuf.message import DecodeError

from moorage.handlers.adapters.generated import shim_pb2 as pb
from moorage.handlers.adapters.ttrpc import (
    REQUEST,
    RESPONSE,
    ConnectionLostError,
    Frame,
    read_frame,
)

_OUT_OF_MEMORY = "/tasks/oom"
_CLOSING_S = 2.0


@contextlib.asynccontextmanager
async def listen_for_events(
    path: Path, out_of_memory: Callable[[str], None]
) -> AsyncIterator[None]:
    """Answer shims at a socket; `out_of_memory` is called with the task's id.

    The path stays when it ends: a shim is then refused at once instead of waiting for a file.
    """
    listening = _listen(path)
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            serving[task] = writer
        try:
            while frame := await read_frame(reader):
                if frame.kind == REQUEST:
                    if task_id := _told_of_memory(frame.content):
                        out_of_memory(task_id)
                    answer = pb.Response(payload=b"").SerializeToString()
                    writer.write(Frame(frame.stream, RESPONSE, answer).encode())
                    await writer.drain()
        except (ConnectionLostError, ConnectionError):
            # Its shim has ended amid a word, which loses nothing but that word.
            return
        finally:
            writer.close()
            if task is not None:
                del serving[task]

    server = await asyncio.start_unix_server(serve, sock=listening)
    try:
        yield
    finally:
        server.close()
        for writer in serving.values():
            writer.close()
        if serving:
            await asyncio.wait(tuple(serving), timeout=_CLOSING_S)
        await server.wait_closed()


def _listen(path: Path) -> socket.socket:
    """A socket at a path, for this user alone. Raises OSError."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o600)
    return listening


def _told_of_memory(content: bytes) -> str:
    """The task whose memory ran out, empty for any other event."""
    try:
        request = pb.Request.FromString(content)
        envelope = pb.ForwardRequest.FromString(request.payload).envelope
        if envelope.topic != _OUT_OF_MEMORY:
            return ""
        return pb.OutOfMemory.FromString(envelope.event.value).container_id
    except DecodeError:
        return ""
