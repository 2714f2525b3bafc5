"""DNS server: sockets, the replies that are kept, and what is asked elsewhere.

    datagram ─▶ kept reply? ─▶ sent                      10 µs
             └▶ parsed ─▶ the zone's name? ─▶ encoded, kept, sent
                          └▶ forwarded ─▶ kept while it lives, sent

A reply is kept under the bytes of its query after the ID. Replies of the zone, also those with the
records of an external name, are forgotten with each change of it. Hot path: `_serve`, measured by
`bench/network.py`.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.network.dns.forwarding import Forwarder, NoUpstreamError, lifetimes
from moorage.network.dns.messages import (
    EDNS_BYTES,
    MAX_BYTES,
    SERVFAIL,
    Query,
    UnreadableError,
    alias_records,
    error_reply,
    parse_query,
    question,
    refusal_of,
    replies,
    resolve,
)
from moorage.network.dns.zone import TTL_S, Zone

_KEPT_REPLIES: Final = 4000
_KEPT_QUERY_BYTES: Final = 512
_BURST: Final = 64
"""Datagrams read in one turn of the loop."""
_MAX_TASKS: Final = 2000
_MAX_WAITS: Final = 100
"""Queries of one client that wait for servers outside, so that none takes the place of all."""
_TCP_IDLE_S: Final = 10.0
_MAX_CONNECTIONS: Final = 200
_MAX_CONNECTIONS_OF_CLIENT: Final = 20
_TRUNCATED: Final = 0x02

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A query that waits for a server outside: who asked, its ID, and how it is answered."""

    client: str
    id: bytes
    send: Callable[[bytes], None]


@dataclass(slots=True)
class _Kept:
    """A reply after its ID, in one or more orders; those from elsewhere end."""

    bodies: list[bytes]
    kept_s: float = 0.0
    until_s: float = float("inf")
    lifetimes: tuple[int, ...] = ()

    def body(self, now_s: float) -> bytes:
        body = self.bodies[0] if len(self.bodies) == 1 else random.choice(self.bodies)
        age_s = int(now_s - self.kept_s) if self.lifetimes else 0
        if not age_s:
            return body
        aged = bytearray(body)
        for place in self.lifetimes:
            (left_s,) = struct.unpack_from("!I", aged, place)
            struct.pack_into("!I", aged, place, max(0, left_s - age_s))
        return bytes(aged)


class DnsServer:
    """Answers on sockets that it is given. `is_ready` says whether the zone is complete."""

    def __init__(self, zone: Zone, forwarder: Forwarder, clock: Clock) -> None:
        self._zone = zone
        self._forwarder = forwarder
        self._clock = clock
        self._zone_replies: dict[bytes, _Kept] = {}
        self._outside: dict[bytes, _Kept] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[bytes, list[_Waiting]] = {}
        self._waits_of: Counter[str] = Counter()
        self._connections_of: Counter[str] = Counter()
        self.is_ready = False

    def zone_changed(self) -> None:
        """Forget the replies that the zone gave."""
        # Not cleared, so that a reply that was begun before the change is not kept.
        self._zone_replies = {}

    async def run(self, datagrams: socket.socket, listener: socket.socket) -> None:
        """Answer until cancelled, on a UDP socket and a TCP listener, both non-blocking."""
        loop = asyncio.get_running_loop()
        loop.add_reader(datagrams, self._serve, datagrams)
        try:
            # Not a coroutine function, of which asyncio would log the cancellation as a fault.
            server = await asyncio.start_server(
                lambda *streams: self._start(self._converse(*streams)), sock=listener
            )
            async with server:
                await server.serve_forever()
        finally:
            loop.remove_reader(datagrams)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _serve(self, datagrams: socket.socket) -> None:
        now_s = self._clock.monotonic()
        for _ in range(_BURST):
            try:
                data, client = datagrams.recvfrom(MAX_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # An ICMP error of an earlier reply.
                log.debug("no datagram", reason=error)
                continue
            kept = self._kept(data, now_s)
            if kept is not None:
                _send(datagrams, client, data[:2] + kept.body(now_s))
            else:
                self._ask(data, client[0], partial(_send, datagrams, client))

    def _kept(self, data: bytes, now_s: float) -> _Kept | None:
        key = data[2:]
        for replies_of in (self._zone_replies, self._outside):
            kept = replies_of.get(key)
            if kept is not None:
                if kept.until_s > now_s:
                    return kept
                del replies_of[key]
        return None

    def _ask(self, data: bytes, client: str, send: Callable[[bytes], None]) -> None:
        """Answer a query that no reply is kept of, in a task only where another server is asked."""
        try:
            query = parse_query(data)
        except UnreadableError:
            # Its sender may be forged: what is no query gets no reply.
            return
        reply = self._own_reply(query, data, by_tcp=False)
        if reply is not None:
            send(reply)
        elif self._waits_of[client] >= _MAX_WAITS or len(self._tasks) >= _MAX_TASKS:
            send(error_reply(query, SERVFAIL))
        else:
            self._waits_of[client] += 1
            waiting = self._waiting.setdefault(data[2:], [])
            waiting.append(_Waiting(client, data[:2], send))
            # One query outside for equal ones, since each is a chance for a forged reply.
            if len(waiting) == 1:
                self._start(self._forward(query, data))

    async def _forward(self, query: Query, data: bytes) -> None:
        reply = error_reply(query, SERVFAIL)
        try:
            reply = await self._outside_reply(query, data, by_tcp=False)
        except Exception:
            # Another query may not fail as this one did, so the server goes on.
            log.exception("query broke", name=".".join(query.name))
        finally:
            for one in self._waiting.pop(data[2:]):
                self._waits_of[one.client] -= 1
                if not self._waits_of[one.client]:
                    del self._waits_of[one.client]
                one.send(one.id + reply[2:])

    def _own_reply(self, query: Query, data: bytes, *, by_tcp: bool) -> bytes | None:
        """Return a reply from the zone alone, None where another server must be asked."""
        refusal = refusal_of(query)
        if refusal:
            return error_reply(query, refusal)
        if not self._zone.is_ours(query.name):
            return None
        if not self.is_ready:
            return error_reply(query, SERVFAIL)
        resolved = resolve(self._zone, query.name, query.type)
        if resolved.outside is not None:
            return None
        bodies = replies(query, self._zone, resolved.answer, self._serial())
        if not by_tcp and len(data) <= _KEPT_QUERY_BYTES:
            _keep(self._zone_replies, data, _Kept([body[2:] for body in bodies]))
        return bodies[0]

    async def _outside_reply(self, query: Query, data: bytes, *, by_tcp: bool) -> bytes:
        try:
            if self._zone.is_ours(query.name):
                return await self._alias_reply(query, data, by_tcp=by_tcp)
            reply = await self._forwarder.ask(data, query.name, by_tcp=by_tcp)
        except NoUpstreamError as error:
            log.debug("no answer from outside", name=".".join(query.name), reason=error)
            return error_reply(query, SERVFAIL)
        if not by_tcp:
            self._keep_living(self._outside, data, reply)
        return reply

    async def _alias_reply(self, query: Query, data: bytes, *, by_tcp: bool) -> bytes:
        """Return the alias of an external name, with the records that it has elsewhere."""
        resolved = resolve(self._zone, query.name, query.type)
        target = resolved.outside
        if target is None:
            return replies(query, self._zone, resolved.answer, self._serial())[0]
        kept = self._zone_replies
        try:
            reply = await self._forwarder.ask(question(target, query.type), target)
            more = alias_records(reply, target)
        except (NoUpstreamError, UnreadableError) as error:
            # The alias alone is a valid answer, which a client can follow.
            log.debug("external name not resolved", name=".".join(target), reason=error)
            return replies(query, self._zone, resolved.answer, self._serial())[0]
        reply = replies(query, self._zone, resolved.answer, self._serial(), more)[0]
        if more and not by_tcp:
            self._keep_living(kept, data, reply)
        return reply

    def _keep_living(self, kept_replies: dict[bytes, _Kept], data: bytes, reply: bytes) -> None:
        """Keep a reply as long as the shortest TTL in it."""
        if len(data) > _KEPT_QUERY_BYTES or len(reply) > EDNS_BYTES or reply[2] & _TRUNCATED:
            return
        try:
            places = lifetimes(reply)
        except ValueError:
            return
        seconds = [struct.unpack_from("!I", reply, place)[0] for place in places]
        live_s = min(TTL_S, *seconds) if seconds else 0
        if live_s:
            now_s = self._clock.monotonic()
            # Places are counted from the ID, which is not kept.
            kept = _Kept([reply[2:]], now_s, now_s + live_s, tuple(place - 2 for place in places))
            _keep(kept_replies, data, kept)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the queries of a TCP connection, one after the other."""
        client = writer.get_extra_info("peername", ("",))[0]
        self._connections_of[client] += 1
        try:
            while (
                self._connections_of[client] <= _MAX_CONNECTIONS_OF_CLIENT
                and self._connections_of.total() <= _MAX_CONNECTIONS
            ):
                async with asyncio.timeout(_TCP_IDLE_S):
                    (size,) = struct.unpack("!H", await reader.readexactly(2))
                    data = await reader.readexactly(size)
                query = parse_query(data, by_tcp=True)
                reply = self._own_reply(query, data, by_tcp=True)
                if reply is None:
                    reply = await self._outside_reply(query, data, by_tcp=True)
                async with asyncio.timeout(_TCP_IDLE_S):
                    writer.write(struct.pack("!H", len(reply)) + reply)
                    await writer.drain()
        except (asyncio.IncompleteReadError, TimeoutError, UnreadableError, ConnectionError):
            # The client is done, gone, slow or no resolver.
            return
        finally:
            self._connections_of[client] -= 1
            if not self._connections_of[client]:
                del self._connections_of[client]
            writer.close()

    def _serial(self) -> int:
        return int(self._clock.now().timestamp())


def _keep(kept: dict[bytes, _Kept], data: bytes, reply: _Kept) -> None:
    if len(kept) >= _KEPT_REPLIES:
        # The oldest go first.
        for key in list(kept)[: _KEPT_REPLIES // 10]:
            del kept[key]
    kept[data[2:]] = reply


def _send(datagrams: socket.socket, client: Any, reply: bytes) -> None:
    try:
        datagrams.sendto(reply, client)
    except OSError as error:
        # The send buffer is full, or the client is gone: it asks again.
        log.debug("reply not sent", reason=error)
