"""Connector: what waits for a connection may be cancelled at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from moorage.cluster.access.identities import Authority, Subject
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.connector import Connector
from moorage.wire.client.resources import NODES
from moorage.wire.client.rest import Client, UnreachableError

_STEPS = range(2, 8)
"""Iterations of the loop: after some the TCP connection is open, and the handshake not over."""
_ROUNDS = 8
_STALL_S = 0.002
"""How long the loop is busy in each of them, so that the server's answers arrive meanwhile."""


@pytest.fixture
def config(tmp_path: Path) -> Iterator[ClientConfig]:
    """A server in a thread that completes handshakes, and answers nothing."""
    authority = Authority(tmp_path, datetime.now(UTC))
    pair = authority.issue("server", Subject("server", hosts=("127.0.0.1",)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    accepted, _ = listening.accept()
                    threading.Thread(target=_greet, args=(context, accepted)).start()

        serving = threading.Thread(target=serve)
        serving.start()
        ca = authority.pair.certificate.read_bytes()
        yield ClientConfig(f"https://127.0.0.1:{listening.getsockname()[1]}", ca)
        listening.shutdown(socket.SHUT_RDWR)
        serving.join()


def _greet(context: ssl.SSLContext, accepted: socket.socket) -> None:
    with accepted, contextlib.suppress(OSError), context.wrap_socket(
        accepted, server_side=True
    ) as secured:  # fmt: skip
        while secured.recv(4096):
            pass


def test_a_request_that_is_cancelled_while_it_connects_leaves_no_fault_of_the_loop(
    config: ClientConfig,
) -> None:
    faults: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        async with Client(config, user_agent="test") as client:
            for steps in _ROUNDS * list(_STEPS):
                request = asyncio.ensure_future(client.get(NODES, "n"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                    time.sleep(_STALL_S)  # noqa: ASYNC251
                request.cancel()
                time.sleep(_STALL_S)  # noqa: ASYNC251
                await asyncio.gather(request, return_exceptions=True)
                await _closed(client)

    uvloop.run(main())
    assert not faults, faults


async def _closed(client: Client) -> None:
    """Wait until no connection is being opened."""
    assert client._session is not None
    connector = client._session.connector
    assert isinstance(connector, Connector)
    async with asyncio.timeout(10):
        await asyncio.gather(*connector._openings, return_exceptions=True)
    # What was called for then.
    await asyncio.sleep(0)


def test_a_client_that_is_closed_opens_nothing_any_more(config: ClientConfig) -> None:
    async def main() -> set[asyncio.Task[Any]]:
        async with Client(config, user_agent="test") as client:
            request = asyncio.ensure_future(client.get(NODES, "n"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert client._session is not None
            connector = client._session.connector
            assert isinstance(connector, Connector)
            assert connector._openings
            request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert not uvloop.run(main())


async def test_a_server_that_cannot_be_reached_is_reported_as_before() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    async with Client(ClientConfig(f"http://127.0.0.1:{port}"), user_agent="test") as client:
        with pytest.raises(UnreachableError, match=f"cannot connect to 127.0.0.1:{port}"):
            await client.get(NODES, "n")


async def test_an_opening_has_a_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        connector = Connector(ssl=False, opening_s=0.01)
        async with aiohttp.ClientSession(connector=connector) as session:
            with pytest.raises(aiohttp.ConnectionTimeoutError):
                await session.get(url)
