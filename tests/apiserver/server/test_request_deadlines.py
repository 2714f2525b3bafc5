"""Time limits of requests: upstream's answers, and streams that have none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from moorage.api.errors import BadRequestError
from moorage.apiserver.server.request_deadlines import RequestLimits
from tests.apiserver.running_server import Running, serving
from tests.apiserver.server.test_custom_resources import CRDS, is_established, until
from tests.apiserver.test_custom_conversion import NAME, V2, add, convert, definition
from tests.apiserver.webhook_server import VALIDATING, Json, WebhookServer, webhooks

MAPS = "/api/v1/namespaces/default/configmaps"
TIMED_OUT = (
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the '
    b'allotted timeout","reason":"Timeout","details":{},"code":504}\n'
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", 60.0), ("?timeout=", 60.0), ("?timeout=5s", 5.0), ("?timeout=1m30s", 60.0),
        ("?timeout=0s", 60.0), ("?timeout=-5s", 60.0), ("?timeout=250ms", 0.25),
        ("?timeoutSeconds=5", 60.0),
    ],
)  # fmt: skip
def test_the_limit_of_a_request(query: str, expected: float) -> None:
    assert RequestLimits().seconds(make_mocked_request("GET", f"/api{query}")) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5", 'missing unit in duration "5"'), ("x", 'invalid duration "x"'),
        ("5pc", 'unknown unit "pc" in duration "5pc"'), ("-", 'invalid duration "-"'),
    ],
)  # fmt: skip
def test_a_limit_that_is_no_duration(text: str, why: str) -> None:
    request = make_mocked_request("GET", f"/api?timeout={text}")
    with pytest.raises(BadRequestError) as refused:
        RequestLimits().seconds(request)
    assert str(refused.value) == f"invalid timeout specified in the request URL - time: {why}"


async def be_silent(_: Json) -> Json:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    limits = RequestLimits(request_s=2.0, write_s=0.2)
    async with serving(tmp_path, runs=True, request_limits=limits) as running:
        yield running


@pytest.fixture
async def hooks(server: Running) -> AsyncIterator[WebhookServer]:
    async with webhooks(server.authority) as served:
        served.answers |= {"silent": be_silent, "convert": convert}
        yield served


async def test_a_write_that_takes_too_long_is_answered(
    server: Running, hooks: WebhookServer
) -> None:
    configuration = hooks.configuration("c", {"path": "silent", "timeoutSeconds": 30})
    assert (await server.ask("POST", VALIDATING, configuration)).status == 201
    for query in ("", "?timeout=100ms"):
        refused = await server.ask("POST", f"{MAPS}{query}", {"metadata": {"name": "a"}})
        assert refused.json == {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Timeout: request did not complete within requested timeout"
                       " - context deadline exceeded",
            "reason": "Timeout", "details": {}, "code": 504,
        }  # fmt: skip
    assert (await server.ask("GET", f"{MAPS}/a")).status == 404


async def test_a_read_that_takes_too_long_is_answered_in_the_words_of_upstream(
    server: Running, hooks: WebhookServer
) -> None:
    assert (await server.ask("POST", CRDS, definition(hooks))).status == 201
    await until(server, f"{CRDS}/{NAME}", is_established)
    await add(server)
    hooks.answers["convert"] = be_silent
    refused = await server.ask("GET", f"{V2}?timeout=100ms")
    assert (refused.status, refused.body) == (504, TIMED_OUT)
    assert refused.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert (await server.ask("GET", V2)).status == 504
    metrics = (await server.ask("GET", "/metrics")).text
    assert any(
        'code="504"' in line and 'resource="endpoints"' in line for line in metrics.splitlines()
    )


async def test_a_stream_has_no_limit(server: Running) -> None:
    async with server.opened(f"{MAPS}?watch=true&timeout=x&timeoutSeconds=1") as answer:
        assert answer.status == 200
        assert await answer.read() == b""


async def test_a_limit_that_is_no_duration_is_refused(server: Running) -> None:
    for path in (MAPS, "/version", "/api"):
        refused = await server.ask("GET", f"{path}?timeout=5")
        assert (refused.status, refused.json["reason"]) == (400, "BadRequest"), path
