"""Webhooks that lie, loop or answer without end: the write fails, and everybody else goes on."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.server.request_deadlines import CallLimits
from tests.apiserver.running_server import Answer, Running, serving
from tests.apiserver.server.test_custom_resources import CRDS, is_established, until
from tests.apiserver.test_custom_conversion import MERGE, V1, V2, convert, definition
from tests.apiserver.webhook_server import MUTATING, VALIDATING, WebhookServer, webhooks

Json = dict[str, Any]
MAPS = "/api/v1/namespaces/default/configmaps"
HEAD = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID",'
MIB = 1024 * 1024
SHORT_S = 0.5
"""How long the loop may compute while a webhook does its worst."""


@pytest.fixture
def call_limits() -> CallLimits:
    return CallLimits()


@pytest.fixture
async def server(tmp_path: Path, call_limits: CallLimits) -> AsyncIterator[Running]:
    async with serving(tmp_path, runs=True, call_limits=call_limits) as running:
        yield running


@pytest.fixture
async def hooks(server: Running) -> AsyncIterator[WebhookServer]:
    async with webhooks(server.authority) as served:
        yield served


async def configure(server: Running, hooks: WebhookServer, where: str, **hook: Any) -> None:
    created = await server.ask("POST", where, hooks.configuration("c", hook))
    assert created.status == 201, created.text


async def write(server: Running, name: str = "m") -> Answer:
    body = {"metadata": {"name": name}, "data": {"own": "0"}}
    return await server.ask("POST", MAPS, body)


def answering(hooks: WebhookServer, path: str, rest: bytes) -> None:
    body = HEAD + rest + b"}}"
    hooks.answers[path] = lambda request: body.replace(b"UID", request["uid"].encode(), 1)


class Stall:
    """The longest time that the loop, which the server is on, computed without a turn for others.

    Time of the processor, so that a busy machine makes no difference.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - began)

    def end(self) -> float:
        self._task.cancel()
        return self.longest_s


MANY: dict[str, bytes] = {
    "causes": b'"allowed":false,"status":{"details":{"causes":[%s{}]}}' % (b"{}," * 2_000_000),
    "warnings": b'"allowed":true,"warnings":[%s""]' % (b'"",' * 2_000_000),
    "annotations": b'"allowed":true,"auditAnnotations":{%s"":""}' % (b'"":"",' * 1_000_000),
}


@pytest.mark.parametrize("what", MANY)
async def test_an_answer_of_millions_of_values_is_not_decoded(
    server: Running, hooks: WebhookServer, what: str
) -> None:
    answering(hooks, "many", MANY[what])
    await configure(server, hooks, VALIDATING, path="many")
    stall = Stall()
    refused = await write(server)
    assert stall.end() < SHORT_S
    assert refused.status == 500
    assert "not an AdmissionReview: more than 150000 values" in refused.text


async def test_a_patch_larger_than_a_body_is_not_decoded(
    server: Running, hooks: WebhookServer
) -> None:
    patch = base64.b64encode(b"[%s{}]" % (b"{}," * 2_000_000))
    answering(hooks, "large", b'"allowed":true,"patchType":"JSONPatch","patch":"%s"' % patch)
    await configure(server, hooks, MUTATING, path="large")
    refused = await write(server)
    assert refused.status == 500
    assert "response.patch has more than 3145728 bytes" in refused.text


async def test_a_denial_of_megabytes_is_cut(server: Running, hooks: WebhookServer) -> None:
    hooks.answers["long"] = lambda _: {"allowed": False, "status": {"message": "a" * 6 * MIB}}
    await configure(server, hooks, VALIDATING, path="long")
    refused = await write(server)
    assert refused.status == 400
    assert len(refused.body) < 40_000


async def test_large_answers_of_a_webhook_are_read_in_turns(
    server: Running, hooks: WebhookServer
) -> None:
    answering(hooks, "large", b'"allowed":true,"x":"%s"' % (b"a" * 2 * MIB))
    await configure(server, hooks, VALIDATING, path="large")
    answers = await asyncio.gather(*(write(server, f"m{index}") for index in range(20)))
    assert [answer.status for answer in answers] == [201] * 20


@pytest.mark.parametrize("call_limits", [CallLimits(webhooks_s=1.0)])
async def test_a_webhook_that_writes_the_same_object_ends_with_the_request(
    server: Running, hooks: WebhookServer
) -> None:
    """Each call makes the write start again."""
    await write(server)
    calls = 0

    async def write_too(request: Json) -> Json:
        nonlocal calls
        if request["object"]["data"]["own"] == "1":
            calls += 1
            change = {"data": {"theirs": str(calls)}}
            await server.ask("PATCH", f"{MAPS}/m", change, Content_Type=MERGE)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await asyncio.Event().wait()
        return {"allowed": True}

    hooks.answers["loop"] = write_too
    await configure(server, hooks, VALIDATING, path="loop", timeoutSeconds=30)
    change = {"data": {"own": "1"}}
    refused = await server.ask("PATCH", f"{MAPS}/m", change, Content_Type=MERGE)
    assert refused.status == 504
    assert "Timeout: request did not complete within requested timeout" in refused.text


OTHER = "things.stable.example.com"


async def defined(server: Running, hooks: WebhookServer) -> None:
    """Two definitions with an object each; the first's webhook is silent, the other's is good."""
    hooks.answers |= {"convert": convert, "good": convert}
    other = definition(hooks)
    other["metadata"]["name"] = OTHER
    other["spec"]["names"] = {"plural": "things", "kind": "Thing"}
    other["spec"]["conversion"]["webhook"]["clientConfig"]["url"] = f"{hooks.url}/good"
    for one in (definition(hooks), other):
        assert (await server.ask("POST", CRDS, one)).status == 201
        await until(server, f"{CRDS}/{one['metadata']['name']}", is_established)
    for kind, place in (("Endpoint", V1), ("Thing", V1.replace("endpoints", "things"))):
        body = {"metadata": {"name": "a"}, "hostPort": "h:1", "kind": kind}
        body["apiVersion"] = "stable.example.com/v1"
        created = await server.ask("POST", place, body)
        assert created.status == 201, created.text


async def test_a_silent_conversion_webhook_does_not_hold_up_another(
    server: Running, hooks: WebhookServer
) -> None:
    await defined(server, hooks)

    is_asked = asyncio.Event()

    async def be_silent(_: Json) -> Json:
        is_asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    hooks.answers["convert"] = be_silent
    change = {"port": "2"}
    waiting = [
        asyncio.create_task(server.ask("PATCH", f"{V2}/a", change, Content_Type=MERGE))
        for _ in range(40)
    ]
    await is_asked.wait()
    other = V2.replace("endpoints", "things")
    async with asyncio.timeout(8):
        patched = await server.ask("PATCH", f"{other}/a", change, Content_Type=MERGE)
    assert patched.status == 200, patched.text
    assert patched.json["port"] == "2"
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


@pytest.mark.parametrize("call_limits", [CallLimits(conversions_s=1.0, conversion_batch=1)])
async def test_the_conversions_of_a_list_share_the_time_of_its_request(
    server: Running, hooks: WebhookServer
) -> None:
    await defined(server, hooks)
    for index in range(20):
        head = {"apiVersion": "stable.example.com/v1", "kind": "Endpoint"}
        body = {**head, "metadata": {"name": f"b{index}"}, "hostPort": "h:1"}
        assert (await server.ask("POST", V1, body)).status == 201

    async def dawdle(request: Json) -> Json:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await asyncio.Event().wait()
        return convert(request)

    hooks.answers["convert"] = dawdle
    refused = await server.ask("GET", V2)
    assert refused.status == 504
    assert "request did not complete within requested timeout" in refused.text


async def test_a_conversion_of_megabytes_of_values_is_refused(
    server: Running, hooks: WebhookServer
) -> None:
    await defined(server, hooks)
    head = b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"'
    values = b"{}," * 900_000

    def lie(request: Json) -> bytes:
        rest = b'","result":{"status":"Success"},"convertedObjects":[%s{}]}}' % values
        return head + str(request["uid"]).encode() + rest

    hooks.answers["convert"] = lie
    stall = Stall()
    refused = await server.ask("GET", f"{V2}/a")
    assert stall.end() < 2 * SHORT_S
    assert refused.status == 500
    assert "returned 900001 objects, expected 1" in refused.text
    hooks.answers["convert"] = lambda _: b"{}" + b" " * 4_000_000
    assert "the answer has more than" in (await server.ask("GET", f"{V2}/a")).text
