from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from moorage.api.containers import HTTPGetAction
from moorage.node.probes.checks import HttpAnswer, HttpClient, HttpFailure, headers_of, url_of
from tests.node.objects import a_container


def action(**fields: Any) -> HTTPGetAction:
    return msgspec.convert({"port": 80, **fields}, HTTPGetAction)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, "http://10.1.0.5/"),
        ({"path": "healthz?full=1"}, "http://10.1.0.5/healthz?full=1"),
        (
            {"path": "/dial?request=echo%3Fmsg%3Dx%26y"},
            "http://10.1.0.5/dial?request=echo%3Fmsg%3Dx%26y",
        ),
        ({"path": "/a%20b%2Fc"}, "http://10.1.0.5/a%20b%2Fc"),
        ({"path": "/a b?c d&e=+ü#f"}, "http://10.1.0.5/a%20b?c%20d&e=+%C3%BC"),
        ({"path": "/50%?a=b"}, "http://10.1.0.5/50%25%3Fa=b"),
        ({"path": "/a", "port": 81, "scheme": "HTTPS"}, "https://10.1.0.5:81/a"),
        ({"host": "web.example", "port": "http"}, "http://web.example:8080/"),
    ],
)
def test_where_it_goes(fields: dict[str, Any], wanted: str) -> None:
    container = a_container(ports=[{"name": "http", "containerPort": 8080}])
    assert str(url_of(action(**fields), container, "10.1.0.5")) == wanted


def test_addresses_of_version_six() -> None:
    assert str(url_of(action(port=81), a_container(), "fd00::5")) == "http://[fd00::5]:81/"


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ([], [("User-Agent", "kube-probe/1.37"), ("Accept", "*/*")]),
        ([("user-agent", "mine")], [("user-agent", "mine"), ("Accept", "*/*")]),
        ([("Accept", "")], [("User-Agent", "kube-probe/1.37")]),
        (
            [("Accept", "text/plain")],
            [("Accept", "text/plain"), ("User-Agent", "kube-probe/1.37")],
        ),
    ],
)
def test_headers(headers: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> None:
    fields = [{"name": name, "value": value} for name, value in headers]
    assert headers_of(action(httpHeaders=fields), "probe") == wanted


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async def ok(request: web.Request) -> web.Response:
        return web.Response(text=f"hello {request.headers['User-Agent']}")

    async def slow(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async def here(_: web.Request) -> web.Response:
        raise web.HTTPFound("/ok")

    async def away(_: web.Request) -> web.Response:
        raise web.HTTPFound("http://elsewhere.invalid/")

    async def circle(_: web.Request) -> web.Response:
        raise web.HTTPFound("/circle")

    application = web.Application()
    for handler in (ok, slow, here, away, circle):
        application.router.add_get(f"/{handler.__name__}", handler)
    result = TestServer(application)
    await result.start_server(shutdown_timeout=0.1)
    yield result
    await result.close()


async def get(port: int, path: str, timeout_s: float = 5) -> HttpAnswer:
    async with HttpClient() as client:
        return await client.get(
            action(path=path, port=port),
            a_container(),
            "127.0.0.1",
            purpose="probe",
            timeout_s=timeout_s,
        )


async def test_an_answer(server: TestServer) -> None:
    assert server.port is not None
    assert await get(server.port, "/ok") == HttpAnswer(200, "hello kube-probe/1.37")
    assert (await get(server.port, "/gone")).status == 404


async def test_redirects_are_followed_on_the_same_host_only(server: TestServer) -> None:
    assert server.port is not None
    assert (await get(server.port, "/here")).status == 200
    assert (await get(server.port, "/away")).is_redirect
    with pytest.raises(HttpFailure, match="stopped after 10 redirects"):
        await get(server.port, "/circle")


async def test_missing_answer_is_reported_as_by_go(server: TestServer) -> None:
    assert server.port is not None
    with pytest.raises(HttpFailure, match=r"context deadline exceeded \(Client.Timeout exceeded"):
        await get(server.port, "/slow", timeout_s=0.05)
    port = server.port
    await server.close()
    refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    with pytest.raises(HttpFailure, match=refused):
        await get(port, "/ok")
