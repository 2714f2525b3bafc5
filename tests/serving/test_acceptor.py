"""Accepting connections, with real sockets."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from moorage.serving import Acceptor, Limits, prove

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


@asynccontextmanager
async def serving(limits: Limits, answer: Answer = _answer) -> AsyncIterator[Served]:
    server = web.Server(answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    try:
        async with Acceptor(server, [listener], limits) as acceptor:
            yield Served(acceptor, port)
    finally:
        await runner.cleanup()


async def test_a_connection_is_counted_until_it_has_ended() -> None:
    async with serving(Limits()) as served:
        clients = [await served.connect() for _ in range(5)]
        await served.until_open(5)
        for _, writer in clients:
            writer.close()
        await served.until_open(0)
        assert await served.ask() == b"HTTP/1.1 200 OK"


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
        for _, each in (*hogs, (reader, writer)):
            each.close()


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nX: "])
async def test_what_sends_no_whole_head_is_cut_off(sent: bytes) -> None:
    async with serving(Limits(head_s=1)) as served:
        reader, writer = await served.connect()
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""
        writer.close()
