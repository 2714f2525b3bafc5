"""Requests: errors as the server words them, patience with a busy one, tokens that rotate."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from moorage.api.errors import ConflictError, NotFoundError, StatusError
from moorage.api.meta import ObjectMeta
from moorage.api.nodes import Node
from moorage.controllers.objects import ENDPOINT_SLICES, EndpointSlice
from moorage.wire.client.config import ClientConfig
from moorage.wire.client.resources import NODES, PODS, RUNTIME_CLASSES
from moorage.wire.client.rest import (
    AnswerTooLargeError,
    Client,
    PatchType,
    UnreachableError,
    encode,
)
from tests.wire.client.fake_api import answer, refusal, running


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
        (PODS.path("ns", "p", "status"), "/api/v1/namespaces/ns/pods/p/status"),
        (NODES.path(None, "n"), "/api/v1/nodes/n"),
        (NODES.path("ignored", "n"), "/api/v1/nodes/n"),
        (RUNTIME_CLASSES.path(None, "r"), "/apis/node.k8s.io/v1/runtimeclasses/r"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


def test_objects_go_out_with_their_kind() -> None:
    assert msgspec.json.decode(encode(NODES, {"spec": {}})) == {
        "kind": "Node", "apiVersion": "v1", "spec": {},
    }  # fmt: skip
    assert encode(NODES, Node()) == b'{"kind":"Node","apiVersion":"v1"}'
    typed = Node(metadata=ObjectMeta(name="n"))
    assert encode(NODES, typed) == b'{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}'


async def test_null_is_an_absent_field() -> None:
    slice_ = {"metadata": {"name": "s", "labels": None}, "endpoints": None, "ports": None}
    async with running() as (api, client):
        api.failures.append(answer(slice_))
        assert await client.get(ENDPOINT_SLICES, "s", "ns") == EndpointSlice(
            metadata=ObjectMeta(name="s")
        )
        api.failures.append(answer({"items": [slice_, {"metadata": {"name": "t"}}]}))
        listed = await client.list(ENDPOINT_SLICES)
        assert [item.metadata.name for item in listed.items] == ["s", "t"]
        api.failures.append(answer({"metadata": {"name": 1}, "endpoints": None}))
        with pytest.raises(UnreachableError, match="cannot be read"):
            await client.get(ENDPOINT_SLICES, "s", "ns")


async def test_pages_that_are_too_large_are_asked_for_with_fewer_objects() -> None:
    async with running() as (api, client):
        for number in range(40):
            api.put(f"n{number:02}", text="x" * (10_000 if number % 10 else 10))
        found, largest = [], 0
        async for page in client.pages(NODES, page_size=20, most_bytes=25_000):
            found += [node.metadata.name for node in page.items]
            largest = max(largest, len(msgspec.json.encode(page.items)))
        assert found == [f"n{number:02}" for number in range(40)]
        assert largest <= 25_000
        # Half of them at most are in vain.
        assert len(api.requests) <= 80
        api.put("n99", text="x" * 30_000)
        with pytest.raises(AnswerTooLargeError, match="more than 25000 bytes"):
            async for _ in client.pages(NODES, most_bytes=25_000):
                pass
        assert len([page async for page in client.pages(NODES)]) == 1


async def test_a_refusal_is_the_exception_of_its_reason() -> None:
    async with running() as (api, client):
        api.failures.append(refusal(404, "NotFound", 'nodes "n" not found'))
        with pytest.raises(NotFoundError, match='nodes "n" not found'):
            await client.get(NODES, "n")
        api.failures.append(refusal(409, "Conflict", "changed"))
        with pytest.raises(ConflictError, match="changed"):
            await client.update(NODES, {}, "n")


@pytest.mark.parametrize(
    ("response", "code", "message"),
    [
        (lambda: web.Response(status=502, text="bad gateway\n"), 502, "bad gateway"),
        (lambda: web.Response(status=500), 500, "Internal Server Error"),
        (lambda: web.Response(status=403, text='{"kind":"Other"}'), 403, '{"kind":"Other"}'),
        (lambda: web.Response(status=400, text="[]"), 400, "[]"),
        (lambda: web.Response(status=302, headers={"Location": "/login"}, text="go"), 302, "go"),
    ],
)
async def test_error_answer_without_status_is_an_error_of_its_code(
    response: Callable[[], web.Response], code: int, message: str
) -> None:
    async with running() as (api, client):
        api.failures.append(response)
        with pytest.raises(StatusError) as refused:
            await client.get(NODES, "n")
        assert (refused.value.status_code, refused.value.message) == (code, message)


@pytest.mark.parametrize("body", ["<html>", "[]", '{"metadata": 5}'])
async def test_answer_that_is_no_object_is_an_error_of_the_connection(body: str) -> None:
    def respond() -> web.Response:
        return web.Response(text=body, content_type="application/json")

    async with running() as (api, client):
        api.failures += [respond, respond]
        with pytest.raises(UnreachableError, match="answer cannot be read"):
            await client.get(NODES, "n1")
        with pytest.raises(UnreachableError, match="answer cannot be read"):
            await client.list(NODES)


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    async with running() as (api, client):
        api.failures += [refusal(429, "TooManyRequests", Retry_After="0")] * 3
        api.failures.append(answer({"metadata": {"name": "n"}}))
        assert (await client.get(NODES, "n")).metadata.name == "n"
        assert len(api.requests) == 4


async def test_a_busy_server_that_names_no_time_is_not() -> None:
    async with running() as (api, client):
        for pause in ({}, {"Retry_After": "soon"}, {"Retry_After": "\u00b2"}):
            api.failures.append(refusal(429, "TooManyRequests", **pause))
            with pytest.raises(StatusError) as refused:
                await client.get(NODES, "n")
            assert refused.value.status_code == 429


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    async with running() as (_, client):
        server = client.server
    async with Client(ClientConfig(server=server), user_agent="test") as client:
        with pytest.raises(UnreachableError):
            await client.get(NODES, "n")


async def test_what_is_asked_for_is_in_the_request() -> None:
    async with running(token="t") as (api, client):
        api.failures += [answer({"metadata": {}})] * 3
        await client.patch(NODES, "n", [], kind=PatchType.JSON, field_manager="me")
        await client.patch(NODES, "n", {}, kind=PatchType.APPLY, field_manager="me", force=True)
        await client.delete(NODES, "n", uid="u", grace_period_seconds=0)
        first, second, third = api.requests
        assert first.headers["Content-Type"] == "application/json-patch+json"
        assert first.headers["User-Agent"] == "test"
        assert first.headers["Authorization"] == "Bearer t"
        assert dict(first.query) == {"fieldManager": "me"}
        assert dict(second.query) == {"fieldManager": "me", "force": "true"}
        assert third.method == "DELETE"


async def test_watches_that_begin_together_end_apart() -> None:
    async with running() as (api, client):
        api.ends_watches_at_once = True
        config = ClientConfig(server=client.server)
        async with Client(config, user_agent="test", watch_s=3600.0) as patient:
            for one in (*[client] * 8, *[patient] * 8):
                assert [event async for event in one.watch(NODES, resource_version="1")] == []
        asked = [int(request.query["timeoutSeconds"]) for request in api.requests]

    assert all(300 <= one <= 600 for one in asked[:8])
    assert all(3600 <= one <= 7200 for one in asked[8:])
    assert len(set(asked)) > 2


async def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    async with running(token_file=token) as (api, client):
        api.failures += [answer({"metadata": {}})] * 3
        await client.get(NODES, "n")
        token.write_text("new\n")
        os.utime(token, ns=(1, 1))
        await client.get(NODES, "n")
        assert [request.headers["Authorization"] for request in api.requests] == [
            "Bearer old",
            "Bearer new",
        ]


async def test_a_token_file_that_is_gone_for_a_moment_is_a_reason_to_try_again(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    async with running(token_file=token) as (_, client):
        with pytest.raises(UnreachableError, match="token"):
            await client.get(NODES, "n")


async def test_a_client_must_be_open() -> None:
    client = Client(ClientConfig(server="http://host"), user_agent="test")
    with pytest.raises(RuntimeError, match="not open"):
        await client.get(NODES, "n")


async def test_a_server_that_is_not_there_is_named_with_the_reason() -> None:
    async with Client(ClientConfig(server="http://127.0.0.1:1"), user_agent="t") as client:
        with pytest.raises(UnreachableError) as caught:
            await client.get(NODES, "a")
    assert str(caught.value) == "cannot connect to 127.0.0.1:1: Connection refused"
