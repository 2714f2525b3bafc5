"""Exec and attach as websocket clients use them."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import aiohttp
import pytest

from moorage.wire.cri import pb
from moorage.wire.streaming.connection import Deadlines
from tests.engine.streams.callers import by_channel, messages, serving, websocket
from tests.engine.streams.targets import DEADLINE_S, FakeTarget, echo, says, silent

V5, V4, V1 = "v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
OUTPUTS = pb.ExecRequest(container_id="c1", cmd=["x"], stdout=True, stderr=True)
WITH_INPUT = pb.ExecRequest(container_id="c1", cmd=["cat"], stdin=True, stdout=True)
TERMINAL = pb.ExecRequest(container_id="c1", cmd=["sh"], stdin=True, stdout=True, tty=True)


@pytest.mark.parametrize("version", [V5, V4])
async def test_a_greeting_comes_first_and_the_status_last(version: str) -> None:
    async with (
        serving(FakeTarget(says(b"out", b"err", 7))) as server,
        websocket(server.exec_url(OUTPUTS), version) as connection,
    ):
        assert connection.protocol == version
        received = await messages(connection)
    assert received[:-1] == [b"\x01", b"\x01out", b"\x02err"]
    assert received[-1][0] == ERROR
    status = json.loads(received[-1][1:])
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


@pytest.mark.parametrize(
    ("asked", "channel"),
    [
        (pb.ExecRequest(stdin=True), ERROR),
        (pb.ExecRequest(stderr=True), STDERR),
        (pb.ExecRequest(stdout=True, stderr=True), STDOUT),
    ],
)
async def test_the_greeting_is_on_the_lowest_channel_that_the_server_writes(
    asked: pb.ExecRequest, channel: int
) -> None:
    async with (
        serving(FakeTarget(says())) as server,
        websocket(server.exec_url(asked), V4) as connection,
    ):
        assert (await messages(connection))[0] == bytes((channel,))


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([V5, V4], V5),
        ([V4, V5], V4),
        (["v9.channel.k8s.io", V1], V1),
        (["base64url.bearer.authorization.k8s.io.dG9rZW4", V4], V4),
        ([], None),
    ],
)
async def test_the_first_protocol_offered_that_is_spoken_is_taken(
    offered: list[str], chosen: str | None
) -> None:
    async with (
        serving(FakeTarget(says())) as server,
        websocket(server.exec_url(OUTPUTS), *offered) as connection,
    ):
        assert connection.protocol == chosen


async def test_unknown_protocols_are_refused() -> None:
    async with serving(FakeTarget(says())) as server:
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            async with websocket(server.exec_url(OUTPUTS), "v9.channel.k8s.io"):
                pass
        assert raised.value.status == 403


@pytest.mark.parametrize("protocols", [(V1,), ()], ids=["the first version", "none"])
async def test_the_first_version_says_nothing_of_success(protocols: tuple[str, ...]) -> None:
    async with (
        serving(FakeTarget(says(b"out"))) as server,
        websocket(server.exec_url(OUTPUTS), *protocols) as connection,
    ):
        assert await messages(connection) == [b"\x01", b"\x01out"]


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("v4.base64.channel.k8s.io", b'{"metadata":{},"status":"Success"}'),
        ("base64.channel.k8s.io", b""),
    ],
)
async def test_base64_versions_are_text_with_a_digit(version: str, message: bytes) -> None:
    async with (
        serving(FakeTarget(lambda process: echo_once(process))) as server,
        websocket(server.exec_url(WITH_INPUT), version) as connection,
    ):
        await connection.send_str("0" + base64.b64encode(b"\xff\0").decode())
        received = await messages(connection)
    assert received[:2] == ["1", "1" + base64.b64encode(b"\xff\0").decode()]
    assert received[2:] == (["3" + base64.b64encode(message).decode()] if message else [])


async def echo_once(process) -> int:  # type: ignore[no-untyped-def]
    await process.out(await process.stdin.read())
    return 0


async def test_version_5_can_end_the_input() -> None:
    async with (
        serving(FakeTarget(echo)) as server,
        websocket(server.exec_url(WITH_INPUT), V5) as connection,
    ):
        await connection.send_bytes(b"\0hello ")
        await connection.send_bytes(b"\0world")
        await connection.send_bytes(b"\xff\0")
        received = by_channel(await messages(connection))
    assert received[STDOUT] == b"hello world"
    assert json.loads(received[ERROR]) == {"metadata": {}, "status": "Success"}


async def test_version_4_cannot() -> None:
    target = FakeTarget(echo)
    async with serving(target) as server, websocket(server.exec_url(WITH_INPUT), V4) as connection:
        await connection.send_bytes(b"\xff\0")
        await connection.send_bytes(b"\0x")
        assert await connection.receive_bytes() == b"\x01"
        assert await connection.receive_bytes() == b"\x01x"
        assert not target.process.stdin.has_ended


async def test_a_terminal_is_resized() -> None:
    target = FakeTarget(echo)
    async with serving(target) as server, websocket(server.exec_url(TERMINAL), V5) as connection:
        await connection.send_bytes(b'\x04{"Width":80,"Height":24}')
        async with asyncio.timeout(DEADLINE_S):
            await target.started.wait()
        await target.process.until_sized((80, 24))


async def test_messages_for_unknown_channels_are_ignored() -> None:
    async with (
        serving(FakeTarget(echo)) as server,
        websocket(server.exec_url(WITH_INPUT), V5) as connection,
    ):
        for message in (b"\x01x", b"\x09x", b"\xff\x63", b"\xff", b"\x02" * (1 << 20)):
            await connection.send_bytes(message)
        await connection.send_bytes(b"\0x\xff")
        await connection.send_bytes(b"\xff\0")
        assert by_channel(await messages(connection))[STDOUT] == b"x\xff"


@pytest.mark.parametrize(
    ("version", "message"),
    [(V5, b""), ("v4.base64.channel.k8s.io", b"0!"), ("v4.base64.channel.k8s.io", b"")],
)
async def test_invalid_message_ends_the_stream_with_an_error(version: str, message: bytes) -> None:
    target = FakeTarget(silent)
    async with (
        serving(target) as server,
        websocket(server.exec_url(WITH_INPUT), version) as connection,
    ):
        await target.started.wait()
        await connection.send_bytes(message)
        async with asyncio.timeout(DEADLINE_S):
            async for _ in connection:
                pass
        assert connection.close_code == 1002
        assert target.process.was_killed


@pytest.mark.parametrize("is_rude", [True, False])
async def test_the_process_is_killed_when_its_client_goes(is_rude: bool) -> None:
    target = FakeTarget(silent)
    async with serving(target) as server:
        async with websocket(server.exec_url(WITH_INPUT), V5) as connection:
            await target.started.wait()
            if is_rude:
                transport: Any = connection._conn.transport  # type: ignore[union-attr]  # it is open
                transport.abort()
        async with asyncio.timeout(DEADLINE_S):
            await target.process.closed.wait()
        assert target.process.was_killed


async def test_a_client_that_does_not_read_makes_the_process_wait() -> None:
    sent = 0

    async def floods(process) -> int:  # type: ignore[no-untyped-def]
        nonlocal sent
        while True:
            await process.out(b"x" * (1 << 20))
            sent += 1

    async with (
        serving(FakeTarget(floods), Deadlines(close_s=0.2)) as server,
        websocket(server.exec_url(OUTPUTS), V5),
    ):
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 32
