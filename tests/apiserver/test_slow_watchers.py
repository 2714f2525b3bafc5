"""A watch whose client does not read is ended, at a bounded cost, and the others go on."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from moorage.apiserver.endpoints.watch import WatchTimes
from tests.apiserver.running_server import Running, serving

MAPS = "/api/v1/namespaces/default/configmaps"
_COUNT = 90
_VALUE = "x" * 400_000


async def opened(
    server: Running, revision: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A watch that has begun, of which no more is read than the answer's head.

    The kernel keeps little for it: with 32 MiB of tcp_rmem it would take nearly all that is sent.
    """
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", server.port))
    reader, writer = await asyncio.open_connection(
        sock=plain, ssl=server.tls(), server_hostname="127.0.0.1"
    )
    head = (
        f"GET {MAPS}?watch=1&resourceVersion={revision} HTTP/1.1\r\nHost: x\r\n"
        "Authorization: Bearer admin-token\r\n\r\n"
    )
    writer.write(head.encode())
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def count_events(reader: asyncio.StreamReader) -> int:
    """Read a watch until all changes were there."""
    count, rest = 0, b""
    while count < _COUNT:
        read = await reader.read(2**20)
        assert read, f"the watch ended after {count} changes"
        rest += read
        count += rest.count(b'"type":"MODIFIED"')
        rest = rest[-16:]
    return count


async def test_a_watch_that_is_not_read_ends(tmp_path: Path) -> None:
    async with serving(tmp_path, watch_times=WatchTimes(overflow_grace_s=0.1)) as server:
        made = await server.ask("POST", MAPS, {"metadata": {"name": "big"}})
        revision = made.json["metadata"]["resourceVersion"]
        reader, writer = await opened(server, revision)
        other_reader, other_writer = await opened(server, revision)
        other = asyncio.ensure_future(count_events(other_reader))
        for number in range(_COUNT):
            body = {"metadata": {"name": "big"}, "data": {"n": str(number), "v": _VALUE}}
            assert (await server.ask("PUT", f"{MAPS}/big", body)).status == 200
        received = 0
        async with asyncio.timeout(30):
            try:
                while chunk := await reader.read(2**20):
                    received += len(chunk)
            except ConnectionResetError:
                pass
        assert received < _COUNT * len(_VALUE)
        writer.transport.abort()
        # One that reads has all of them.
        async with asyncio.timeout(30):
            assert await other == _COUNT
        other_writer.transport.abort()
        # And the client of the ended one can list again.
        assert (await server.ask("GET", f"{MAPS}/big")).status == 200
