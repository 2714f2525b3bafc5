"""Accepting connections, with real sockets."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import resource
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from moorage.cluster.access.identities import Authority, Subject
from moorage.wire.serving import Acceptor, Limits, acceptor, prove
from moorage.wire.serving.acceptor import AcceptorTimes, Opening
from moorage.wire.serving.connection import HttpConnection
from moorage.wire.serving.limits import ConnectionTable, Place

WITHIN_S = 20.0


class Served:
    """A server that knows everyone who sends `X-Known`."""

    def __init__(self, acceptor: Acceptor, port: int) -> None:
        self.acceptor = acceptor
        self.port = port

    async def ask(self, *headers: str, connection: Client | None = None) -> bytes:
        """The first line of an answer, on a connection of its own unless given."""
        own = connection or await self.connect()
        own[1].write("\r\n".join(("GET / HTTP/1.1", "Host: x", *headers, "", "")).encode())
        try:
            head = await asyncio.wait_for(own[0].readuntil(b"\r\n\r\n"), WITHIN_S)
            await own[0].readexactly(len(b"hello"))
        finally:
            if connection is None:
                own[1].close()
        return head.partition(b"\r\n")[0]

    async def connect(self) -> Client:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def until_open(self, count: int) -> None:
        async with asyncio.timeout(WITHIN_S):
            while self.acceptor.table.size != count:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    if "X-Known" in request.headers:
        prove(request)
    return web.Response(text="hello")


class Listener(socket.socket):
    """A listening socket that can be out of descriptors, or report other addresses."""

    def __init__(self, *, peer: str = "", own: str = "") -> None:
        super().__init__()
        self.bind(("127.0.0.1", 0))
        # Clients may connect before the acceptor has started.
        self.listen(128)
        self.setblocking(False)
        self.is_exhausted = False
        self.refusals = 0
        self.refused = asyncio.Event()
        self._peer = peer
        self._own = own
        self.accepted: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        if self.is_exhausted:
            self.refusals += 1
            self.refused.set()
            raise OSError(errno.EMFILE, "Too many open files")
        accepted, peer = super().accept()
        connection = _Accepted(fileno=accepted.detach())
        connection.own = self._own
        self.accepted.append(connection)
        return connection, (self._peer or peer[0], peer[1])


class _Accepted(socket.socket):
    own = ""

    def getsockname(self) -> Any:
        name = super().getsockname()
        return (self.own or name[0], name[1])


@asynccontextmanager
async def serving(
    limits: Limits,
    answer: Answer = _answer,
    listener: socket.socket | None = None,
    tls: ssl.SSLContext | None = None,
    **more: Any,
) -> AsyncIterator[Served]:
    """A server on loopback. Fails if a callback or a task of it has failed."""
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    server = web.Server(answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    listener = listener or Listener()
    port = listener.getsockname()[1]
    try:
        async with Acceptor(server, [listener], limits, tls, **more) as acceptor:
            yield Served(acceptor, port)
    finally:
        await runner.cleanup()
    # Tasks report their failure when they are collected.
    gc.collect()
    assert failures == []


async def test_a_connection_is_counted_until_it_has_ended() -> None:
    async with serving(Limits()) as served:
        clients = [await served.connect() for _ in range(5)]
        await served.until_open(5)
        assert await served.ask(connection=clients[-1]) == b"HTTP/1.1 200 OK"
        # What opened them has ended.
        assert served.acceptor.opening == 0
        for _, writer in clients:
            writer.close()
        await served.until_open(0)
        assert await served.ask() == b"HTTP/1.1 200 OK"


async def test_no_socket_can_block_the_event_loop() -> None:
    listener = Listener()
    listener.setblocking(True)
    blocking: list[bool] = []

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        blocking.extend(connection.getblocking() for connection in listener.accepted)
        return web.Response(text="hello")

    async with serving(Limits(), answer, listener) as served:
        assert not listener.getblocking()
        assert await served.ask() == b"HTTP/1.1 200 OK"
    assert blocking == [False]


async def test_a_socket_that_is_only_bound_is_listened_on() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    async with serving(Limits(), listener=listener) as served:
        assert await served.ask() == b"HTTP/1.1 200 OK"


class FakeProtocol:
    """A protocol that is aborted, as the table's place does it."""

    is_waiting = True

    def __init__(self) -> None:
        self.aborted = 0

    def abort(self) -> None:
        self.aborted += 1


async def test_an_open_connection_is_dropped_by_its_protocol_alone() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        opening = Opening(ours)
        opening.task = asyncio.ensure_future(asyncio.get_running_loop().create_future())
        assert opening.is_waiting()
        protocol: Any = FakeProtocol()
        opening.protocol = protocol
        for is_waiting in (True, False):
            protocol.is_waiting = is_waiting
            assert opening.is_waiting() is is_waiting
        opening.abort()
        await asyncio.sleep(0)
        assert protocol.aborted == 1
        assert not opening.task.cancelled()
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        # Before it is open, the socket and the task that opens it are ended.
        opening.protocol = None
        opening.abort()
        assert theirs.recv(1) == b""
        with pytest.raises(asyncio.CancelledError):
            await opening.task
    # Closed already: no error.
    opening.abort()


async def test_a_handshake_that_is_dropped_ends_its_task(tmp_path: Path) -> None:
    places: list[Any] = []

    class Recording(ConnectionTable):
        def admit(self, place: Place) -> bool:
            places.append(place)
            return super().admit(place)

    tls, _ = _tls(tmp_path)
    limits = Limits(head_s=1000)
    async with serving(limits, tls=tls, table=Recording(limits)) as served:
        reader, writer = await served.connect()
        await served.until_open(1)
        opening = places[0].abort.__self__
        assert served.acceptor.opening == 1
        places[0].abort()
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
        await served.until_open(0)
        assert opening.task.cancelled()
        writer.close()


async def test_a_flood_of_silent_connections_keeps_no_one_out() -> None:
    async with serving(Limits(connections=6, reserved=2, head_s=1000)) as served:
        known = await served.connect()
        assert await served.ask("X-Known: yes", connection=known) == b"HTTP/1.1 200 OK"
        silent = [await served.connect() for _ in range(40)]
        assert await served.ask() == b"HTTP/1.1 200 OK"
        assert await served.ask(connection=known) == b"HTTP/1.1 200 OK"
        assert served.acceptor.table.size <= 6
        for _, writer in (*silent, known):
            writer.close()


async def test_a_process_without_descriptors_accepts_again_later() -> None:
    async with serving(Limits(head_s=1000)) as served:
        hogs = [await served.connect() for _ in range(3)]
        await served.until_open(3)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as highest:
            late = socket.socket()
            late.setblocking(False)
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno(), hard))
            try:
                await asyncio.get_running_loop().sock_connect(late, ("127.0.0.1", served.port))
                # One silent connection has made room for the process itself.
                async with asyncio.timeout(WITHIN_S):
                    assert await hogs[0][0].read() == b""
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        reader, writer = await asyncio.open_connection(sock=late)
        assert await served.ask(connection=(reader, writer)) == b"HTTP/1.1 200 OK"
        for _, hog in (*hogs, (reader, writer)):
            hog.close()


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nX: "])
async def test_what_sends_no_whole_head_is_cut_off(sent: bytes) -> None:
    async with serving(Limits(head_s=1), times=AcceptorTimes(sweep_s=0.01)) as served:
        reader, writer = await served.connect()
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
        writer.close()


def _tls(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The server's and the client's side of TLS."""
    authority = Authority(directory / "pki", datetime.now(UTC))
    pair = authority.issue("server", Subject("server", hosts=("127.0.0.1",)))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pair.certificate, pair.key)
    return server, ssl.create_default_context(cafile=str(authority.pair.certificate))


def _connected(port: int, count: int) -> list[socket.socket]:
    """Clients whose connections all wait in the listener's queue: the event loop has no turn."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


async def _ends(client: socket.socket) -> bool:
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    return await asyncio.wait_for(loop.sock_recv(client, 1), WITHIN_S) == b""


async def test_out_of_descriptors_one_silent_connection_goes_and_accepting_pauses() -> None:
    listener = Listener()
    times = AcceptorTimes(pause_s=3600.0)
    async with serving(Limits(head_s=1000), listener=listener, times=times) as served:
        silent = [await served.connect() for _ in range(3)]
        await served.until_open(3)
        listener.is_exhausted = True
        (late,) = _connected(served.port, 1)
        assert await asyncio.wait_for(silent[0][0].read(), WITHIN_S) == b""
        for _ in range(50):
            await asyncio.sleep(0)
        assert listener.refusals == 1
        assert served.acceptor.table.size == 2
        late.close()
        for _, writer in silent:
            writer.close()


async def test_accepting_resumes_after_the_pause() -> None:
    listener = Listener()
    times = AcceptorTimes(pause_s=0.001)
    async with serving(Limits(head_s=1000), listener=listener, times=times) as served:
        listener.is_exhausted = True
        reader, writer = await served.connect()
        for _ in range(3):
            listener.refused.clear()
            await asyncio.wait_for(listener.refused.wait(), WITHIN_S)
        listener.is_exhausted = False
        assert await served.ask(connection=(reader, writer)) == b"HTTP/1.1 200 OK"
        writer.close()


async def test_a_server_that_ends_in_a_pause_does_not_accept_after_it() -> None:
    pause_s = 0.01
    listener = Listener()
    failures: list[Any] = []
    times = AcceptorTimes(pause_s=pause_s)
    async with serving(Limits(), listener=listener, times=times) as served:
        listener.is_exhausted = True
        (late,) = _connected(served.port, 1)
        await asyncio.wait_for(listener.refused.wait(), WITHIN_S)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    # The event loop runs timers in the order of their time, so the pause's would have run by then.
    await asyncio.sleep(2 * pause_s)
    late.close()
    assert failures == []


@pytest.mark.parametrize(
    ("peer", "own", "is_limited"),
    [
        ("", "", False),
        ("127.8.9.1", "", False),
        ("::1", "::ffff:9", False),
        ("10.0.0.1", "10.0.0.1", False),
        ("10.0.0.1", "10.0.0.2", True),
        ("::2", "::3", True),
        ("1.127.0.1", "", True),
    ],
)
async def test_only_other_machines_are_limited_by_their_address(
    peer: str, own: str, is_limited: bool
) -> None:
    listener = Listener(peer=peer, own=own)
    async with serving(Limits(per_address=2, head_s=1000), listener=listener) as served:
        clients = [await served.connect() for _ in range(4)]
        await served.until_open(2 if is_limited else 4)
        if is_limited:
            # The oldest made room.
            for reader, _ in clients[:2]:
                assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
        for _, writer in clients:
            writer.close()


async def test_a_refused_connection_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    served_connections: list[HttpConnection] = []

    def make(*arguments: Any, **options: Any) -> HttpConnection:
        served_connections.append(HttpConnection(*arguments, **options))
        return served_connections[-1]

    monkeypatch.setattr(acceptor, "HttpConnection", make)
    async with serving(Limits(connections=2, reserved=1)) as served:
        known = [await served.connect() for _ in range(2)]
        for connection in known:
            await served.ask("X-Known: yes", connection=connection)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (late,) = _connected(served.port, 1)
            assert await _ends(late)
            gc.collect()
        assert [str(warning.message) for warning in caught if "unclosed" in str(warning)] == []
        assert await served.ask(connection=known[0]) == b"HTTP/1.1 200 OK"
        assert len(served_connections) == 2
        assert served.acceptor.table.size == 2
        for _, writer in known:
            writer.close()
        late.close()


async def test_a_flood_is_logged_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moorage")
    times = AcceptorTimes(sweep_s=0.001)
    async with serving(Limits(connections=1, reserved=0), times=times) as served:
        known = await served.connect()
        await served.ask("X-Known: yes", connection=known)
        for _ in range(2):
            caplog.clear()
            late = _connected(served.port, 3)
            for client in late:
                assert await _ends(client)
                client.close()
            async with asyncio.timeout(WITHIN_S):
                while _counted(caplog) != 3:  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(0)
            levels = [record.levelname for record in caplog.records]
            assert levels[0] == "WARNING"
            assert set(levels[1:]) == {"INFO"}
        known[1].close()


def _counted(caplog: pytest.LogCaptureFixture) -> int:
    fields = [getattr(record, "moorage_fields", {}) for record in caplog.records]
    return sum(field.get("count", 0) for field in fields)


async def test_a_client_without_tls_gives_its_place_back(tmp_path: Path) -> None:
    tls, _ = _tls(tmp_path)
    async with serving(Limits(head_s=1000), tls=tls) as served:
        reader, writer = await served.connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(reader.read(), WITHIN_S)
        await served.until_open(0)
        writer.close()


async def test_a_client_that_leaves_during_the_handshake_gives_its_place_back(
    tmp_path: Path,
) -> None:
    tls, _ = _tls(tmp_path)
    async with serving(Limits(head_s=1000), tls=tls) as served:
        _, writer = await served.connect()
        await served.until_open(1)
        writer.close()
        await served.until_open(0)


async def test_a_silent_handshake_makes_room(tmp_path: Path) -> None:
    tls, trusting = _tls(tmp_path)
    async with serving(Limits(connections=1, reserved=0, head_s=1000), tls=tls) as served:
        silent, writer = await served.connect()
        await served.until_open(1)
        client = await asyncio.open_connection("127.0.0.1", served.port, ssl=trusting)
        assert await asyncio.wait_for(silent.read(), WITHIN_S) == b""
        assert await served.ask(connection=client) == b"HTTP/1.1 200 OK"
        assert served.acceptor.table.size == 1
        client[1].close()
        writer.close()


async def test_a_server_that_ends_closes_what_is_in_its_handshake(tmp_path: Path) -> None:
    tls, _ = _tls(tmp_path)
    async with serving(Limits(head_s=1000), tls=tls) as served:
        reader, writer = await served.connect()
        await served.until_open(1)
    assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
    assert served.acceptor.table.size == 0
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await served.connect()


async def test_the_end_of_tls_is_not_awaited_for_long(tmp_path: Path) -> None:
    tls, trusting = _tls(tmp_path)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(received, sent, server_hostname="127.0.0.1")
    async with serving(Limits(), tls=tls, times=AcceptorTimes(tls_end_s=0.01)) as served:
        reader, writer = await served.connect()

        async def step(action: Callable[[], Any]) -> Any:
            while True:
                try:
                    return action()
                except ssl.SSLWantReadError:
                    writer.write(sent.read())
                    received.write(await asyncio.wait_for(reader.read(65536), WITHIN_S))

        await step(client.do_handshake)
        client.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        writer.write(sent.read())
        answer = b""
        while piece := await step(lambda: client.read(65536)):
            answer += piece
        assert answer.endswith(b"hello")
        # The server has ended TLS; this client does not answer, and is dropped all the same.
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
        writer.close()


async def test_little_is_kept_of_what_a_client_does_not_read(tmp_path: Path) -> None:
    piece = b"x" * 16384
    kept: list[int] = []
    stalled = asyncio.Event()

    async def flood(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        transport: Any = request.transport
        while not request.protocol.writing_paused:
            transport.write(piece)
            await asyncio.sleep(0)
        kept.append(transport.get_write_buffer_size())
        stalled.set()
        request.protocol.force_close()
        return response

    tls, trusting = _tls(tmp_path)
    async with serving(Limits(), flood, tls=tls) as served:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", served.port, ssl=trusting, limit=1024
        )
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(stalled.wait(), WITHIN_S)
        assert kept[0] < 128 * 1024
        writer.transport.abort()


async def test_a_client_that_does_not_read_stops_no_one_else() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"x" * (16 << 20) if "X-Large" in request.headers else b"hello")

    async with serving(Limits(), answer) as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Large: yes\r\n\r\n")
        assert await served.ask() == b"HTTP/1.1 200 OK"
        writer.transport.abort()
