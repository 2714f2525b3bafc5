"""HTTP endpoint of streaming: redeems a token, upgrades, then runs the agreed protocol.

    GET|POST /{exec,attach,portforward}/TOKEN ─▶ 101, then SPDY/3.1 or a websocket

This module imports the HTTP library and is therefore imported at the first URL. The library owns
the tasks of requests; leaving `serving` cancels them. Source: CRI streaming library; RFC 9110 §7.8.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.engine.streams.clients import (
    SOCKET_CHANNELS,
    CommandRequest,
    Gathering,
    channel_names,
    coding,
    greeted,
)
from moorage.engine.streams.command import Channels, attach_to, exec_into
from moorage.engine.streams.forward import Pairs, Pod
from moorage.engine.streams.requests import (
    SOCKET_COMMAND,
    SOCKET_PORT_FORWARD,
    SPDY_COMMAND,
    SPDY_PORT_FORWARD,
    Dialect,
    StreamRequest,
    Target,
    Tokens,
    choose,
    path_of,
)
from moorage.linux.descriptors import descriptor_limit
from moorage.wire.cri import pb
from moorage.wire.serving import Acceptor, Limits, prove
from moorage.wire.streaming.channel_socket import TUNNEL, ChannelSocket, Tunnel, accept
from moorage.wire.streaming.connection import Deadlines, IdleTimer
from moorage.wire.streaming.pipe import ByteStream
from moorage.wire.streaming.race import first_to_end
from moorage.wire.streaming.spdy import ServerSession
from moorage.wire.streaming.unfinished import Unfinished
from moorage.wire.streaming.upgrade import (
    PROTOCOL_VERSION,
    SPDY,
    WEBSOCKET,
    HandledResponse,
    offered_subprotocols,
    offered_versions,
    take_over,
    upgrade_of,
)

log = Log(__name__)

_ACCEPTED_VERSIONS = "X-Accepted-Stream-Protocol-Versions"
_METHODS = ("GET", "POST")
_PORT_BYTES = 2
# Tokens do not identify users, so all clients share one budget of unfinished messages.
_ALL = "all"
_UNFINISHED_BYTES = 96 * 1024 * 1024
# Each port has two channels, and a channel number is one byte.
_SOCKET_PORTS = 127
# Streams are cancelled before this limit; it applies to connections without a request.
_SHUTDOWN_S = 0.1


class Endpoint:
    """Serves the stream requests that tokens stand for."""

    def __init__(
        self, target: Target, tokens: Tokens[StreamRequest], clock: Clock, deadlines: Deadlines
    ) -> None:
        self._target = target
        self._tokens = tokens
        self._clock = clock
        self._deadlines = deadlines
        self._live: set[asyncio.Task[Any]] = set()
        self._unfinished = Unfinished(
            total_bytes=_UNFINISHED_BYTES, per_user_bytes=_UNFINISHED_BYTES
        )

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve on a listening socket inside the block; leaving it cancels the open streams."""
        application = web.Application()
        for method in _METHODS:
            application.router.add_route(method, "/{action}/{token}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        assert runner.server is not None
        # The other half of the descriptors is for containers.
        limits = Limits.for_descriptors(descriptor_limit() // 2)
        try:
            async with Acceptor(runner.server, [listener], limits):
                yield
        finally:
            live = tuple(self._live)
            for task in live:
                task.cancel()
            await asyncio.gather(*live, return_exceptions=True)
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        stream_request = self._tokens.redeem(request.match_info["token"])
        if stream_request is None or request.match_info["action"] != path_of(stream_request):
            raise web.HTTPNotFound(
                text="unknown or expired stream URL: it is valid once, for one minute"
            )
        prove(request)
        task = asyncio.current_task()
        assert task is not None
        self._live.add(task)
        task.add_done_callback(self._live.discard)
        try:
            return await self._stream(request, stream_request)
        except OSError as error:
            log.debug("stream broke", stream=path_of(stream_request), why=str(error) or "timed out")
            return HandledResponse()

    async def _stream(
        self, request: web.Request, stream_request: StreamRequest
    ) -> web.StreamResponse:
        protocol = upgrade_of(request)
        is_port_forward = isinstance(stream_request, pb.PortForwardRequest)
        if protocol == SPDY:
            offered = offered_versions(request)
            spoken = SPDY_PORT_FORWARD if is_port_forward else SPDY_COMMAND
            return await self._spdy(request, stream_request, _agreed(offered, spoken))
        if protocol == WEBSOCKET:
            offered = offered_subprotocols(request)
            if isinstance(stream_request, pb.PortForwardRequest):
                if TUNNEL in offered:
                    return await self._tunnel(request, stream_request)
                return await self._port_socket(
                    request, stream_request, _agreed(offered, SOCKET_PORT_FORWARD)
                )
            return await self._command_socket(
                request, stream_request, _agreed(offered, SOCKET_COMMAND)
            )
        raise web.HTTPBadRequest(text=f"an upgrade to {SPDY} or {WEBSOCKET} is required")

    async def _spdy(
        self, request: web.Request, stream_request: StreamRequest, dialect: Dialect
    ) -> web.StreamResponse:
        lines = ((PROTOCOL_VERSION, dialect.name),) if offered_versions(request) else ()
        async with await take_over(request, SPDY, lines) as connection:
            if isinstance(stream_request, pb.PortForwardRequest):
                await self._forward_pairs(connection, stream_request)
            else:
                await self._spdy_command(connection, stream_request, dialect)
        return HandledResponse()

    async def _tunnel(
        self, request: web.Request, call: pb.PortForwardRequest
    ) -> web.StreamResponse:
        websocket = await self._accept(request, TUNNEL)
        try:
            await self._forward_pairs(Tunnel(websocket), call)
        finally:
            await websocket.close()
        return websocket

    async def _spdy_command(self, link: ByteStream, call: CommandRequest, dialect: Dialect) -> None:
        gathering = Gathering(channel_names(call, dialect))
        timer = self._timer()

        async def command() -> None:
            async with asyncio.timeout(self._deadlines.stream_creation_s):
                channels = await gathering.channels(dialect)
            await self._command(call, channels)

        session = ServerSession(link, gathering.admit, timer)
        await first_to_end(session.run(), command(), timer.expired())

    async def _command_socket(
        self, request: web.Request, call: CommandRequest, dialect: Dialect
    ) -> web.StreamResponse:
        websocket = await self._accept(request, dialect.name)
        timer = self._timer()
        channels = ChannelSocket(websocket, SOCKET_CHANNELS, coding(dialect), timer)

        async def command() -> None:
            names = channel_names(call, dialect)
            await self._command(call, await greeted(channels, names, dialect))

        await self._until_closed(websocket, channels.run(), command(), timer.expired())
        return websocket

    async def _command(self, call: CommandRequest, channels: Channels) -> None:
        if isinstance(call, pb.ExecRequest):
            await exec_into(self._target, call, channels, self._deadlines.drain_s)
        else:
            await attach_to(self._target, call, channels)

    async def _forward_pairs(self, link: ByteStream, call: pb.PortForwardRequest) -> None:
        timer = self._timer()
        failure: OSError | None = None
        async with asyncio.TaskGroup() as group:
            pairs = Pairs(group, self._pod(call))
            session = ServerSession(link, pairs.admit, timer)
            try:
                await first_to_end(session.run(), timer.expired())
            except OSError as error:
                failure = error
            finally:
                pairs.cancel()
        if failure is not None:
            raise failure

    async def _port_socket(
        self, request: web.Request, call: pb.PortForwardRequest, dialect: Dialect
    ) -> web.StreamResponse:
        if not 0 < len(call.port) <= _SOCKET_PORTS:
            raise web.HTTPBadRequest(
                text=f"port forward over a WebSocket requires 1 to {_SOCKET_PORTS} ports in the "
                f"PortForward call, not {len(call.port)}"
            )
        websocket = await self._accept(request, dialect.name)
        timer = self._timer()
        count = len(call.port) * 2
        socket = ChannelSocket(websocket, count, coding(dialect), timer)

        async def forward() -> None:
            pod = self._pod(call)
            for place, port in enumerate(call.port):
                for channel in socket.channels[2 * place : 2 * place + 2]:
                    await channel.write(port.to_bytes(_PORT_BYTES, "little"))
            await asyncio.gather(
                *(
                    pod.forward(port, socket.channels[2 * place], socket.channels[2 * place + 1])
                    for place, port in enumerate(call.port)
                )
            )

        await self._until_closed(websocket, socket.run(), forward(), timer.expired())
        return websocket

    async def _accept(self, request: web.Request, subprotocol: str) -> web.WebSocketResponse:
        websocket = await accept(request, subprotocol, self._deadlines.close_s)
        self._unfinished.bound(request, websocket, _ALL)
        return websocket

    def _pod(self, call: pb.PortForwardRequest) -> Pod:
        return Pod(self._target, call.pod_sandbox_id, self._deadlines)

    def _timer(self) -> IdleTimer:
        return IdleTimer(self._deadlines.idle_s, self._clock)

    @staticmethod
    async def _until_closed(
        websocket: web.WebSocketResponse, *running: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await first_to_end(*running)
        except OSError as error:
            log.debug("stream broke", why=str(error))
            await websocket.close(code=1002)
        finally:
            await websocket.close()


def _agreed(offered: Sequence[str], spoken: Sequence[Dialect]) -> Dialect:
    """Return the protocol version that both support. Raises HTTPForbidden without one."""
    dialect = choose(offered, spoken)
    if dialect is None:
        names = [version.name for version in spoken if version.name]
        raise web.HTTPForbidden(
            text=f"no common protocol: the client offers {', '.join(offered)}; "
            f"the engine accepts {', '.join(names)}",
            headers=[(_ACCEPTED_VERSIONS, name) for name in names],
        )
    return dialect
