"""Port-forward: pairs of channels, each pair copied to its own connection into the pod.

    data ◀──bytes──▶ port in the pod        error ──why the port is unreachable──▶ client

The failure of a pair does not affect the others. Text on the error channel makes kubectl end all
forwarding, so only an unreachable port is reported there; a connection that breaks later resets its
data stream. Source: CRI `PortForward`, client-go `portforward`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from moorage.api.logs import Log
from moorage.engine.errors import EngineError
from moorage.engine.handlers.adapters import AdapterError
from moorage.engine.streams.requests import Target
from moorage.linux.namespaces import connected_socket
from moorage.wire.streaming.connection import Connection, Deadlines
from moorage.wire.streaming.pipe import ByteStream, join
from moorage.wire.streaming.spdy import SpdyStream

# Pod port connections: to 127.0.0.1 in the pod, else to ::1.
#
# Source: CRI `PortForward`; the order is containerd's and CRI-O's.

LOOPBACK = ("127.0.0.1", "::1")


async def dial_port(
    namespace: Path | None,
    port: int,
    within_s: float = 30.0,
    *,
    hosts: Sequence[str] = LOOPBACK,
) -> Connection:
    """Connect to a port in a network namespace, by the first of `hosts` that answers.

    None is the host's namespace.

    Raises the OSError of the IPv4 attempt when all fail, and TimeoutError after `within_s`.
    """
    async with asyncio.timeout(within_s):
        failures: list[OSError] = []
        for host in hosts:
            try:
                opened = await connected_socket(namespace, host, port)
            except OSError as error:
                failures.append(error)
                continue
            loop = asyncio.get_running_loop()
            try:
                _, connection = await loop.create_connection(Connection, sock=opened)
            except BaseException:
                opened.close()
                raise
            return connection
        raise failures[0]


log = Log(__name__)

_TYPES = ("error", "data")
_LARGEST_PORT = 65535


class Channel(ByteStream, Protocol):
    """A channel of a pair."""

    async def reset(self) -> None:
        """Abort the channel, and notify the client if the protocol allows."""

    def discard(self) -> None:
        """Ignore data from the client."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod's ports, and the time limit of a connection."""

    target: Target
    sandbox_id: str
    deadlines: Deadlines

    async def forward(self, port: int, data: Channel, error: Channel) -> None:
        """Connect to a port and copy to the connection's end; then close both channels.

        An unreachable port is reported on `error`; a connection that breaks resets `data`. Raises
        OSError when the client has disconnected.
        """
        try:
            async with asyncio.timeout(self.deadlines.dial_s):
                connection = await self.target.dial(self.sandbox_id, port)
        except (EngineError, AdapterError, OSError) as failure:
            why = _reason(failure, port)
            text = f"error forwarding port {port} to pod {self.sandbox_id}: {why}"
            await error.write(text.encode())
        else:
            try:
                async with connection:
                    await join(data, connection, self.deadlines)
            except OSError as failure:
                log.debug("forwarded connection broke", sandbox=self.sandbox_id, why=str(failure))
                await data.reset()
        # Unread bytes of this pair would block the others.
        data.discard()
        await data.write_eof()
        await error.write_eof()


def _reason(failure: Exception, port: int) -> str:
    if isinstance(failure, ConnectionRefusedError):
        return f"connection refused: nothing in the pod listens on 127.0.0.1:{port} or [::1]:{port}"
    return " ".join(str(failure).split()) or "timed out"


@dataclass(slots=True)
class _Pair:
    port: int
    streams: dict[str, SpdyStream] = field(default_factory=dict)
    is_whole: asyncio.Event = field(default_factory=asyncio.Event)


class Pairs:
    """The pairs of one SPDY connection, each copied by a task of the group."""

    def __init__(self, group: asyncio.TaskGroup, pod: Pod) -> None:
        self._group = group
        self._pod = pod
        self._pairs: dict[str, _Pair] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, stream: SpdyStream) -> bool:
        """Admit a stream that the client opens, and start a task for the first of a pair.

        Returns False for an unknown type, an invalid port, a second stream of a type, and a port
        that differs from the other stream's.
        """
        kind, port = stream.headers.get("streamtype", ""), forwarded_port(stream.headers)
        if kind not in _TYPES or port is None:
            return False
        request = _request_of(stream, kind)
        pair = self._pairs.get(request)
        if pair is None:
            pair = self._pairs[request] = _Pair(port)
            task = self._group.create_task(self._carry(request, pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if kind in pair.streams or port != pair.port:
            return False
        pair.streams[kind] = stream
        if kind == "error":
            # Clients send nothing on the error stream.
            stream.discard()
        if len(pair.streams) == len(_TYPES):
            pair.is_whole.set()
        return True

    def cancel(self) -> None:
        """Cancel every pair, when the client has disconnected."""
        for task in self._tasks:
            task.cancel()

    async def _carry(self, request: str, pair: _Pair) -> None:
        try:
            async with asyncio.timeout(self._pod.deadlines.stream_creation_s):
                await pair.is_whole.wait()
            await self._pod.forward(pair.port, pair.streams["data"], pair.streams["error"])
        except OSError as error:
            # Either the second stream was not opened in time, or the client has disconnected.
            log.debug("forwarding ended", sandbox=self._pod.sandbox_id, why=str(error))
            await self._give_up(pair)
        finally:
            del self._pairs[request]

    async def _give_up(self, pair: _Pair) -> None:
        """Reset the streams that are still open."""
        try:
            async with asyncio.timeout(self._pod.deadlines.close_s):
                for stream in pair.streams.values():
                    await stream.reset()
        except OSError as error:
            log.debug("the client disconnected", why=str(error))


def _request_of(stream: SpdyStream, kind: str) -> str:
    """Return the identifier that the two streams of a pair share.

    Old clients send no id: they open the error stream first and its data stream next.
    """
    if request := stream.headers.get("requestid"):
        return request
    return f"#{stream.number if kind == 'error' else stream.number - 2}"


def forwarded_port(headers: Mapping[str, str]) -> int | None:
    """Return the port of a stream, None for an invalid one."""
    text = headers.get("port", "")
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(_LARGEST_PORT)):
        return None
    port = int(text)
    return port if 0 < port <= _LARGEST_PORT else None
