"""Acceptor: accepts connections for an HTTP server within its limits.

The event loop's own acceptor accepts without bound, and a protocol can refuse a connection only
after its TLS handshake. This one checks the limits first, so a refused connection costs one
`accept`, and a connection dropped during its handshake is closed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec
from aiohttp import web

from moorage.api.clock import Clock
from moorage.api.logs import Log
from moorage.wire.serving.connection import AtOnce, HttpConnection
from moorage.wire.serving.limits import ConnectionTable, Limits, Place

# TLS of servers: their certificate, and how clients may prove theirs.


def server_context(
    certificate: Path, key: Path, client_authority: Path | None = None
) -> ssl.SSLContext:
    """Return a server's TLS context, for HTTP/1.1.

    With `client_authority`, certificates of clients are optional, and verified when presented: a
    client without one gets an HTTP status instead of a failed handshake, and bad credentials never
    fall back. Clients need TLS 1.3 then, else 1.2. Raises OSError for files that are missing or
    unusable.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_authority is not None:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_OPTIONAL
        # With 1.2 OpenSSL keeps 20,480 sessions in memory, each with the chain that its client
        # sent, and resumes them; Python cannot turn that off.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session verifies no certificate again, be it expired meanwhile. Clients of the API
    # resume none, and to write tickets takes a tenth of a handshake's processor time.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


# Served certificate: a pair in files that are replaced while a server runs.
#
# A rotation is used for the next connection; open ones go on.

_RELOAD_S = 10.0

log = Log(__name__)


class ServedCertificate:
    """A certificate in files, read again when they change.

    `context` is that of a server. Raises OSError, ssl.SSLError if the files cannot be read.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._seen = self._state()
        self.context = server_context(certificate, key)

    async def follow(self, clock: Clock) -> None:
        """Look at the files every 10 s until cancelled; files that do not go together are kept
        out, and tried again."""
        while True:
            await clock.sleep(_RELOAD_S)
            self.reload()

    def reload(self) -> None:
        """Read the files if they changed."""
        try:
            state = self._state()
            if state != self._seen:
                # A pair that does not go together would leave the context without any.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files)
                self.context.load_cert_chain(*self._files)
                self._seen = state
                log.info("certificate read again", file=self._files[0])
        except (OSError, ssl.SSLError) as error:
            log.warning("certificate cannot be read", file=self._files[0], error=error)

    def _state(self) -> list[tuple[int, int, int]]:
        found = [os.stat(file) for file in self._files]
        return [(stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found]


_BACKLOG = 1024
# Connections accepted per callback, before the event loop runs other work.
_BATCH = 64


class AcceptorTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds between sweeps, and of the pause when the process is out of descriptors.

    `tls_end_s` is the longest wait for the peer's TLS close_notify, which holds a descriptor.
    """

    sweep_s: float = 1.0
    pause_s: float = 0.2
    tls_end_s: float = 5.0


class Acceptor:
    """Accepts connections of `server` on listening sockets while it is entered.

    The acceptor owns the sockets and closes them on exit. Open connections stay until the server's
    own shutdown.
    """

    def __init__(
        self,
        server: web.Server,
        listeners: Sequence[socket.socket],
        limits: Limits,
        tls: ssl.SSLContext | None = None,
        at_once: AtOnce | None = None,
        *,
        table: ConnectionTable | None = None,
        times: AcceptorTimes | None = None,
    ) -> None:
        """`at_once` answers requests without the server's handler, where it can."""
        self._times = times or AcceptorTimes()
        self._server = server
        self._listeners = listeners
        self._tls = tls
        self._at_once = at_once
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._timers: dict[socket.socket, asyncio.TimerHandle] = {}
        self._refused = 0
        self.table = table or ConnectionTable(limits)

    async def __aenter__(self) -> Self:
        for listener in self._listeners:
            listener.setblocking(False)
            listener.listen(_BACKLOG)
            self._loop.add_reader(listener, self._accept, listener)
        self._sweeping = asyncio.create_task(self._sweep(), name="connection deadlines")
        return self

    async def __aexit__(self, *_: object) -> None:
        for listener in self._listeners:
            if (timer := self._timers.get(listener)) is not None:
                timer.cancel()
            self._loop.remove_reader(listener)
            listener.close()
        tasks = (*self._opening, self._sweeping)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def opening(self) -> int:
        """Return how many accepted connections are being opened."""
        return len(self._opening)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                connection, peer = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listener, error)
                return
            connection.setblocking(False)
            self._admit(connection, peer)

    def _admit(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        opening = Opening(connection)
        address = peer[0]
        is_local = _is_local(address, connection)
        place = Place(address, is_local, opening.abort, opening.is_waiting)
        if not self.table.admit(place):
            connection.close()
            self._count_refused(address)
            return
        protocol = HttpConnection(
            self._server,
            idle_s=self._limits.idle_s,
            on_proven=lambda user: self.table.prove(place, user),
            on_lost=lambda: self.table.release(place),
            at_once=self._at_once,
        )
        task = asyncio.create_task(self._open(opening, protocol, place))
        opening.task = task
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, opening: Opening, protocol: HttpConnection, place: Place) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                opening.socket,
                ssl=self._tls,
                # The table's handshake deadline expires before the event loop's.
                ssl_shutdown_timeout=None if self._tls is None else self._times.tls_end_s,
            )
        except OSError as error:
            log.debug("connection not opened", peer=place.address, reason=error)
        else:
            opening.protocol = protocol
        finally:
            if opening.protocol is None:
                opening.end()
                self.table.release(place)

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """Pause accepting: no descriptor or memory is left for a connection."""
        log.warning("connections are not accepted now", reason=error)
        self.table.drop_unproven()
        self._loop.remove_reader(listener)
        self._timers[listener] = self._loop.call_later(self._times.pause_s, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        self._loop.add_reader(listener, self._accept, listener)

    def _count_refused(self, address: str) -> None:
        if not self._refused:
            log.warning("too many connections; new ones are refused", peer=address)
        self._refused += 1

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._times.sweep_s)
            self.table.sweep()
            if self._refused:
                log.info("connections were refused", count=self._refused, open=self.table.size)
                self._refused = 0


class Opening:
    """An accepted connection; `protocol` is set once it is open."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.task: asyncio.Task[None] | None = None
        self.protocol: HttpConnection | None = None

    def is_waiting(self) -> bool:
        """Return whether the client owes the server a handshake or a request."""
        return self.protocol is None or self.protocol.is_waiting

    def abort(self) -> None:
        """Drop the connection at once."""
        if self.protocol is not None:
            self.protocol.abort()
            return
        self.end()
        if self.task is not None:
            self.task.cancel()

    def end(self) -> None:
        """Shut the socket down; the event loop, which may hold it, reads EOF and closes it."""
        # It may be closed already.
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


def _is_local(address: str, connection: socket.socket) -> bool:
    """Return whether the peer has a local address of the host."""
    return address.startswith("127.") or address == "::1" or address == connection.getsockname()[0]
