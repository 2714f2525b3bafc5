"""Calls by ttrpc against a server that misbehaves in each way a server can."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.engine.handlers.adapters.generated import shim_pb2 as pb
from moorage.engine.handlers.adapters.ttrpc import (
    MOST_BYTES,
    NOT_FOUND,
    REQUEST,
    RESPONSE,
    ConnectionLostError,
    Frame,
    Framing,
    TtrpcClient,
    TtrpcError,
)

Answer = Callable[[Frame, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def connected(directory: Path, answer: Answer) -> AsyncIterator[TtrpcClient]:
    """A client of a server that answers each frame by `answer`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing = Framing()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                for frame in framing.feed(data):
                    await answer(frame, writer)
        writer.close()

    path = directory / "socket"
    server = await asyncio.start_unix_server(serve, path)
    try:
        client = await TtrpcClient.connect(str(path), deadline_s=1)
        try:
            yield client
        finally:
            client.close()
    finally:
        server.close()
        await server.wait_closed()


async def call(client: TtrpcClient, task_id: str = "x", deadline_s: float | None = 5) -> int:
    request = pb.StartRequest(id=task_id)
    reply = await client.call("s", "Start", request, pb.StartResponse, deadline_s=deadline_s)
    return reply.pid


def response(frame: Frame, **fields: object) -> bytes:
    content = pb.Response(**fields).SerializeToString()  # type: ignore[arg-type]
    return Frame(frame.stream, RESPONSE, content).encode()


def echo(frame: Frame) -> bytes:
    """A reply whose number is the one in the request."""
    request = pb.StartRequest.FromString(pb.Request.FromString(frame.content).payload)
    reply = pb.StartResponse(pid=int(request.id))
    return response(frame, payload=reply.SerializeToString())


async def test_calls_at_once_get_each_its_own_answer_in_any_order(tmp_path: Path) -> None:
    held: list[Frame] = []

    async def answer(frame: Frame, writer: asyncio.StreamWriter) -> None:
        held.append(frame)
        if len(held) == 100:
            writer.writelines(map(echo, reversed(held)))

    async with connected(tmp_path, answer) as client:
        calls = [call(client, str(number)) for number in range(100)]
        assert await asyncio.gather(*calls) == list(range(100))
    assert all(frame.stream % 2 == 1 and frame.kind == REQUEST for frame in held)


async def test_refusal_has_its_code_and_message(tmp_path: Path) -> None:
    async def answer(frame: Frame, writer: asyncio.StreamWriter) -> None:
        status = pb.CallStatus(code=NOT_FOUND, message="no such task")
        writer.write(response(frame, status=status))

    async with connected(tmp_path, answer) as client:
        with pytest.raises(TtrpcError, match="no such task") as raised:
            await call(client)
    assert raised.value.code == NOT_FOUND


async def test_a_late_answer_is_a_timeout_and_disturbs_no_later_call(tmp_path: Path) -> None:
    late: list[Frame] = []

    async def answer(frame: Frame, writer: asyncio.StreamWriter) -> None:
        if not late:
            late.append(frame)
            return
        writer.write(echo(late[0]) + echo(frame))

    async with connected(tmp_path, answer) as client:
        with pytest.raises(TimeoutError):
            await call(client, "1", deadline_s=0.01)
        assert await call(client, "2") == 2
    assert pb.Request.FromString(late[0].content).timeout_nano == 10_000_000


async def _vanish(_frame: Frame, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _cut(frame: Frame, writer: asyncio.StreamWriter) -> None:
    writer.write(echo(frame)[:-1])
    writer.close()


async def _too_long(frame: Frame, writer: asyncio.StreamWriter) -> None:
    head = Frame(frame.stream, RESPONSE, b"").encode()
    writer.write((MOST_BYTES + 1).to_bytes(4, "big") + head[4:])


async def _wrong_kind(frame: Frame, writer: asyncio.StreamWriter) -> None:
    writer.write(Frame(frame.stream, 9, b"").encode())


@pytest.mark.parametrize("answer", [_vanish, _cut, _too_long, _wrong_kind])
async def test_a_server_that_goes_or_raves_fails_every_call(tmp_path: Path, answer: Answer) -> None:
    async with connected(tmp_path, answer) as client:
        outcomes = await asyncio.gather(
            call(client, "1", None), call(client, "2"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [ConnectionLostError] * 2
        assert client.is_lost
        with pytest.raises(ConnectionLostError):
            await call(client)


async def test_invalid_response_fails_only_that_call(tmp_path: Path) -> None:
    async def answer(frame: Frame, writer: asyncio.StreamWriter) -> None:
        writer.write(Frame(frame.stream, RESPONSE, b"\xff\xff").encode())

    async with connected(tmp_path, answer) as client:
        with pytest.raises(TtrpcError, match="is not a StartResponse"):
            await call(client)
        assert not client.is_lost


async def test_missing_socket_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConnectionLostError, match="No such file"):
        await TtrpcClient.connect(str(tmp_path / "absent"), deadline_s=1)


_FRAMES = st.lists(
    st.builds(Frame, st.integers(0, 2**32 - 1), st.integers(0, 255), st.binary(max_size=300)),
    max_size=8,
)


@given(_FRAMES, st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[Frame], sizes: list[int]
) -> None:
    content = b"".join(frame.encode() for frame in frames)
    framing, result, number = Framing(), list[Frame](), 0
    while content:
        size = sizes[number % len(sizes)]
        result += framing.feed(content[:size])
        content, number = content[size:], number + 1
    assert result == frames
