"""Running a command through the API: a server on loopback speaks the websocket protocol."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from moorage.api.errors import StatusError
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.exec import ExecResult, exec_in
from moorage.wire.client.rest import Client, UnreachableError

Frames = list[bytes]
SUCCESS = b"\x03" + json.dumps({"status": "Success"}).encode()
UNFINISHED = ExecResult(1, "", "", "the connection ended before the command did")


def failure(**fields: Any) -> bytes:
    return b"\x03" + json.dumps({"status": "Failure", **fields}).encode()


def exit_code(text: str) -> bytes:
    cause = {"reason": "ExitCode", "message": text}
    return failure(message=f"exit code {text}", details={"causes": [cause]})


@asynccontextmanager
async def serving(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[Client]:
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with TestServer(application) as server:
        config = ClientConfig(server=f"http://127.0.0.1:{server.port}")
        async with Client(config, user_agent="test") as client:
            yield client


def saying(frames: Frames, asked: list[web.Request] | None = None) -> Any:
    async def answer(request: web.Request) -> web.WebSocketResponse:
        if asked is not None:
            asked.append(request)
        websocket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await websocket.prepare(request)
        for frame in frames:
            await websocket.send_bytes(frame)
        await websocket.close()
        return websocket

    return answer


@pytest.mark.parametrize(
    ("frames", "wanted"),
    [
        ([b"\x01one ", b"\x02oops", b"\x01two", SUCCESS], ExecResult(0, "one two", "oops")),
        ([SUCCESS], ExecResult(0, "", "")),
        ([exit_code("7")], ExecResult(7, "", "")),
        ([b"\x01", b"", b"\x09unknown", SUCCESS], ExecResult(0, "", "")),
        # Characters and the status may be cut anywhere.
        ([b"\x01\xc3", b"\x01\xbc", SUCCESS[:9], b"\x03" + SUCCESS[9:]], ExecResult(0, "ü", "")),
        ([b"\x01\xff", SUCCESS], ExecResult(0, "\ufffd", "")),
        ([failure(message="no such program", reason="InternalError")],
         ExecResult(1, "", "", "no such program")),
        ([failure(message="m", details=None)], ExecResult(1, "", "", "m")),
        ([failure(message="m", details={"causes": None})], ExecResult(1, "", "", "m")),
        ([], UNFINISHED),
        ([b"\x03"], UNFINISHED),
    ],
)  # fmt: skip
async def test_endings(frames: Frames, wanted: ExecResult) -> None:
    async with serving(saying(frames)) as client:
        assert await exec_in(client, "shop", "web", ["true"]) == wanted


@pytest.mark.parametrize(
    "status",
    [b"\x03{", b"\x03[]", b"\x03\xff", exit_code("seven"),
     failure(message="m", details={"causes": [{"reason": "ExitCode"}]}), b'\x03{"details": 5}'],
)  # fmt: skip
async def test_invalid_status_is_reported_as_error(status: bytes) -> None:
    async with serving(saying([b"\x01out", status])) as client:
        result = await exec_in(client, "shop", "web", ["true"])
    assert (result.exit_code, result.stdout) == (1, "out")
    assert "ended with what is no status" in result.error


async def test_the_command_is_asked_for_word_by_word() -> None:
    asked: list[web.Request] = []
    async with serving(saying([SUCCESS], asked)) as client:
        await exec_in(client, "shop", "web", ["sh", "-c", "a & b=ü"], container="app")
    (request,) = asked
    assert request.path == "/api/v1/namespaces/shop/pods/web/exec"
    assert request.query.getall("command") == ["sh", "-c", "a & b=ü"]
    assert (request.query["container"], request.query["stdout"]) == ("app", "true")
    assert request.headers["Sec-WebSocket-Protocol"] == "v5.channel.k8s.io"


async def test_a_refusal_keeps_its_code() -> None:
    async def refuse(request: web.Request) -> web.Response:
        del request
        return web.Response(status=404, text="no such pod")

    async with serving(refuse) as client:
        with pytest.raises(StatusError) as caught:
            await exec_in(client, "shop", "gone", ["true"])
    assert caught.value.status_code == 404


async def test_without_a_server() -> None:
    config = ClientConfig(server="http://127.0.0.1:1")
    async with Client(config, user_agent="test") as client:
        with pytest.raises(UnreachableError):
            await exec_in(client, "shop", "web", ["true"])
