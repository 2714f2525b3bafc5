"""The endpoint's addresses: what they are good for, for how long, and for whom not."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import Any

import aiohttp
import pytest

from moorage.engine.errors import ExhaustedError, FailedError, InvalidError
from moorage.engine.streams import StreamServer
from moorage.wire.cri import pb
from moorage.wire.serving import Limits
from moorage.wire.streaming.connection import Connection
from moorage.wire.streaming.dial import Refused, Upgraded
from tests.clocks import FakeClock
from tests.engine.streams.callers import asking, serving
from tests.engine.streams.targets import DEADLINE_S, FakeTarget, says

EXEC = pb.ExecRequest(container_id="c1", cmd=["x"], stdout=True)


async def status(url: str, method: str = "POST") -> int:
    async with asking(url, method=method) as answer:
        return answer.head.status


async def test_url_names_the_call_and_ends_in_an_unguessable_token() -> None:
    async with serving(FakeTarget()) as server:
        urls = {
            "exec": server.exec_url(EXEC),
            "attach": server.attach_url(pb.AttachRequest(container_id="c1", stdin=True)),
            "portforward": server.port_forward_url(pb.PortForwardRequest(pod_sandbox_id="s")),
        }
        for path, url in urls.items():
            assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/{path}/[A-Za-z0-9_-]{{22,}}", url)
        assert len({server.exec_url(EXEC) for _ in range(100)}) == 100


async def test_an_address_works_once() -> None:
    async with serving(FakeTarget(says())) as server:
        url = server.exec_url(EXEC)
        async with asking(url) as first:
            assert isinstance(first, Upgraded)
        async with asking(url) as second:
            assert isinstance(second, Refused)
            assert second.head.status == 404


async def test_failed_server_issues_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: StreamServer) -> None:
        raise OSError("no descriptors")

    monkeypatch.setattr(StreamServer, "_serve", fail)
    server = StreamServer(FakeTarget())
    await server.__aenter__()
    await asyncio.wait([server._serving], timeout=DEADLINE_S)
    with pytest.raises(FailedError, match="streaming server has stopped: no descriptors"):
        server.exec_url(EXEC)
    with pytest.raises(OSError, match="no descriptors"):
        await server.__aexit__(None, None, None)


async def test_an_address_works_for_a_minute() -> None:
    clock = FakeClock()
    async with serving(FakeTarget(says()), clock=clock) as server:
        early, late = server.exec_url(EXEC), server.exec_url(EXEC)
        clock.advance(59.9)
        assert await status(early) == 101
        clock.advance(0.1)
        assert await status(late) == 404


async def test_an_address_works_for_its_own_call_alone() -> None:
    async with serving(FakeTarget(says())) as server:
        assert await status(server.exec_url(EXEC).replace("/exec/", "/attach/")) == 404


@pytest.mark.parametrize("path", ["exec/nonsense", "exec/", "exec", "", "else/where/now"])
async def test_other_addresses_are_nowhere(path: str) -> None:
    async with serving(FakeTarget()) as server:
        base = server.exec_url(EXEC).partition("/exec/")[0]
        assert await status(f"{base}/{path}") == 404


async def test_other_methods_are_refused_and_use_nothing_up() -> None:
    async with serving(FakeTarget(says())) as server:
        url = server.exec_url(EXEC)
        assert await status(url, "PUT") == 405
        assert await status(url, "GET") == 101


async def test_a_request_without_an_upgrade_is_a_bad_one() -> None:
    async with (
        serving(FakeTarget()) as server,
        aiohttp.ClientSession() as session,
        session.post(server.exec_url(EXEC)) as answer,
    ):
        assert answer.status == 400
        assert "upgrade" in await answer.text()


async def test_outstanding_streams_are_limited_to_a_thousand() -> None:
    clock = FakeClock()
    async with serving(FakeTarget(), clock=clock) as server:
        for _ in range(1000):
            server.exec_url(EXEC)
        with pytest.raises(ExhaustedError, match="1000 stream requests"):
            server.exec_url(EXEC)
        clock.advance(60)
        server.exec_url(EXEC)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (pb.ExecRequest(container_id="c1", cmd=["x"]), "one of stdin"),
        (pb.ExecRequest(container_id="c1", tty=True), "one of stdin"),
        (pb.ExecRequest(container_id="c1", tty=True, stdout=True, stderr=True), "tty and stderr"),
        (pb.AttachRequest(container_id="c1"), "one of stdin"),
        (pb.AttachRequest(container_id="c1", tty=True, stderr=True), "tty and stderr"),
        (pb.PortForwardRequest(pod_sandbox_id="s", port=[80, 0]), "0 is not a port"),
        (pb.PortForwardRequest(pod_sandbox_id="s", port=[65536]), "65536 is not a port"),
    ],
)
async def test_what_can_never_work_gets_no_address(
    asked: pb.ExecRequest | pb.AttachRequest | pb.PortForwardRequest, why: str
) -> None:
    async with serving(FakeTarget()) as server:
        calls: dict[type, Any] = {
            pb.ExecRequest: server.exec_url,
            pb.AttachRequest: server.attach_url,
            pb.PortForwardRequest: server.port_forward_url,
        }
        with pytest.raises(InvalidError, match=why):
            calls[type(asked)](asked)


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (b"GET /exec/x HTTP/1.1\r\nHost: x\r\nX-Large: " + b"x" * 100_000 + b"\r\n\r\n", b"431"),
        (b"\x16\x03\x01 no text at all\r\n\r\n", b"400"),
        (b"TRACK / HTTP/1.1\r\n\r\n", b"405"),
    ],
    ids=["a huge header", "no HTTP", "no method"],
)
async def test_invalid_head_is_answered_and_the_next_client_served(
    wire: bytes, code: bytes
) -> None:
    async with serving(FakeTarget(says())) as server:
        url = server.exec_url(EXEC)
        port = int(url.split(":")[2].partition("/")[0])
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        async with connection:
            await connection.write(wire)
            async with asyncio.timeout(DEADLINE_S):
                assert (await connection.read()).startswith(b"HTTP/1.0 " + code)
        assert await status(url) == 101


@pytest.mark.slow
async def test_clients_without_a_token_keep_no_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(connections=4, reserved=1, head_s=1)
    monkeypatch.setattr(Limits, "for_descriptors", lambda _: limits)
    async with serving(FakeTarget(says())) as server:
        url = server.exec_url(EXEC)
        port = int(url.split(":")[2].partition("/")[0])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        assert await status(url) == 101
        try:
            async with asyncio.timeout(DEADLINE_S):
                # Some made room, the others took too long.
                assert [await reader.read() for reader, _ in silent] == [b""] * 8
        finally:
            for _, writer in silent:
                writer.close()


async def test_a_client_that_says_nothing_does_not_hold_the_end_up() -> None:
    async with serving(FakeTarget()) as server:
        port = int(server.exec_url(EXEC).split(":")[2].partition("/")[0])
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
        await connection.write(b"GET /exec")
        began = loop.time()
    assert loop.time() - began < 2
    connection.abort()


async def test_unused_server_does_not_load_the_http_library() -> None:
    program = """
import asyncio, sys
from moorage.engine.streams import StreamServer
async def main():
    async with StreamServer(None):
        await asyncio.sleep(0)
# Waits for the threads, in which the import would be.
asyncio.run(main())
assert "aiohttp" not in sys.modules
"""
    ended = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


async def test_ipv6_addresses_stand_in_brackets() -> None:
    async with StreamServer(FakeTarget(says()), "::1") as server:
        url = server.exec_url(EXEC)
        assert url.startswith("http://[::1]:")
        assert await status(url) == 101
