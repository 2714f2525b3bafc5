"""Requests that cannot be read: the client's fault, said so, whatever is wrong with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.apiserver.running_server import Running, serving

MAPS = b"/api/v1/namespaces/default/configmaps"
NAME = b"present"
JSON, YAML = b"application/json", b"application/yaml"
PATCHES = {
    "json": b"application/json-patch+json",
    "merge": b"application/merge-patch+json",
    "strategic": b"application/strategic-merge-patch+json",
    "apply": b"application/apply-patch+yaml",
}


@dataclass
class Answer:
    status: int
    body: Any

    @property
    def message(self) -> str:
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else ""


class Raw:
    """Requests as bytes."""

    def __init__(self, server: Running) -> None:
        self.server = server

    async def __call__(
        self,
        method: bytes,
        path: bytes,
        body: bytes = b"",
        content_type: bytes = JSON,
        *headers: bytes,
    ) -> Answer:
        host, _, port = self.server.url.removeprefix("https://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=self.server.tls())
        head = [
            method + b" " + path + b" HTTP/1.1",
            b"Host: x",
            b"Authorization: Bearer admin-token",
            b"Content-Type: " + content_type,
            b"Content-Length: %d" % len(body),
            b"Connection: close",
            *headers,
        ]
        writer.write(b"\r\n".join(head) + b"\r\n\r\n" + body)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        start, _, text = answer.partition(b"\r\n\r\n")
        try:
            decoded = msgspec.json.decode(text)
        except msgspec.DecodeError:
            decoded = text
        return Answer(int(start.split()[1]), decoded)


@pytest.fixture
async def raw(tmp_path: Path) -> AsyncIterator[Raw]:
    async with serving(tmp_path) as server:
        ask = Raw(server)
        assert (
            await ask(b"POST", MAPS, b'{"metadata":{"name":"%s"},"data":{"a":"0"}}' % NAME)
        ).status == 201
        yield ask
        assert (await ask(b"GET", b"/readyz")).status == 200


def _deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (MAPS + b"/a\xff", 400),
        (MAPS + b"/a%FF", 404),
        (MAPS + b"/%ED%A0%80", 404),
        (MAPS + b"/%00", 404),
        (b"/\xff", 400),
        (b"/apis/\xff/v1/x", 400),
        (MAPS + b"?labelSelector=a\xff", 400),
        (MAPS + b"?labelSelector=a%FF", 400),
        (MAPS + b"?fieldSelector=metadata.name%3D%ED%A0%80", 200),
        (MAPS + b"?continue=%FF%FE", 400),
        (MAPS + b"?limit=" + b"9" * 5000, 400),
        (MAPS + b"?limit=%D9%A1", 400),
        (MAPS + b"?resourceVersion=" + b"9" * 5000, 400),
        (MAPS + b"?resourceVersion=%D9%A1", 400),
        (MAPS + b"?watch=1&timeoutSeconds=" + b"9" * 500, 400),
    ],
)
async def test_paths_and_queries(raw: Raw, path: bytes, status: int) -> None:
    assert (await raw(b"GET", path)).status == status


@pytest.mark.parametrize("header", [b"Accept", b"Impersonate-User", b"X-Any"])
async def test_headers_that_are_not_utf8(raw: Raw, header: bytes) -> None:
    answer = await raw(b"GET", MAPS, b"", JSON, header + b": \xff\xfe")
    assert answer.status == 400
    assert "UTF-8" in answer.message


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        (b"\xff\xfe/1", "\ufffd\ufffd"),
        (b"caf\xc3\xa9/1", "café"),
        (b"a\xe2\x80\xa8b/1", "ab"),
        (b"x" * 200, "x" * 128),
        (b"\xc3\xa9" * 200, "é" * 64),
        (b"\xe2\x80\xa8/1", "unknown"),
    ],
)
async def test_any_user_agent_makes_a_manager(raw: Raw, agent: bytes, manager: str) -> None:
    body = b'{"metadata":{"name":"made"},"data":{"a":"b"}}'
    answer = await raw(b"POST", MAPS, body, JSON, b"User-Agent: " + agent)
    assert answer.status == 201
    assert answer.body["metadata"]["managedFields"][0]["manager"] == manager


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b'{"metadata":{"name":"a\xff"}}', JSON, "json parse error"),
        (b'{"metadata":{"name":"a\\ud800"}}', JSON, "json parse error"),
        (b'{"metadata":{"name":"a\\udfff\\ud800"}}', JSON, "json parse error"),
        (b'{"x":NaN}', JSON, "json parse error"),
        (b'{"x":1e999}', JSON, "json parse error"),
        (b'{"x":' + b"9" * 5000 + b"}", JSON, "json parse error"),
        (b'{"x":%s}' % _deep(500), JSON, "exceeded max depth of 100"),
        (b'{"x":%s}' % _deep(500_000), JSON, "exceeded max depth of 100"),
        (b'{"x":%s,"x":1}' % _deep(500), JSON, "exceeded max depth of 100"),
        (b'{"x":[%s0]}' % (b"0," * 300_000), JSON, "more than 150000 values"),
        (b"? [a]\n: b", YAML, "a map key must be a scalar"),
        (b"a: \xff", YAML, "invalid UTF-8"),
        (b'a: "\\ud800"', YAML, "yaml: line 1"),
        (b"[" * 60_000, YAML, "exceeded max depth of 100"),
        (b"a: " + b"9" * 5000, YAML, "metadata.name: Required value"),
    ],
    ids=str,
)
async def test_bodies(raw: Raw, body: bytes, content_type: bytes, message: str) -> None:
    answer = await raw(b"POST", MAPS, body, content_type)
    assert answer.status == (422 if "Required" in message else 400)
    assert message in answer.message


@pytest.mark.parametrize("kind", PATCHES)
async def test_patches_that_are_too_deep(raw: Raw, kind: str) -> None:
    deep = b'{"metadata":{"annotations":%s}}' % _deep(500)
    if kind == "json":
        deep = b'[{"op":"add","path":"/metadata/annotations","value":%s}]' % _deep(500)
    path = MAPS + b"/" + NAME + (b"?fieldManager=x" if kind == "apply" else b"")
    answer = await raw(b"PATCH", path, deep, PATCHES[kind])
    assert answer.status == 400
    assert "exceeded max depth of 100" in answer.message


@pytest.mark.parametrize("kind", PATCHES)
@pytest.mark.parametrize("text", [b"\xff", b"\\ud800"])
async def test_patches_that_are_not_utf8(raw: Raw, kind: str, text: bytes) -> None:
    body = b'{"data":{"a":"%s"}}' % text
    if kind == "json":
        body = b'[{"op":"add","path":"/data","value":{"a":"%s"}}]' % text
    path = MAPS + b"/" + NAME + (b"?fieldManager=x" if kind == "apply" else b"")
    assert (await raw(b"PATCH", path, body, PATCHES[kind])).status == 400


async def test_operations_that_nest_what_they_add(raw: Raw) -> None:
    operations = b",".join(
        b'{"op":"add","path":"/metadata/annotations%s","value":%s}'
        % (b"/a" * (90 * times), _deep(90).replace(b"1", b"{}"))
        for times in range(1, 30)
    )
    first = b'{"op":"add","path":"/metadata/annotations","value":%s}' % _deep(90).replace(
        b"1", b"{}"
    )
    body = b"[" + first + b"," + operations + b"]"
    answer = await raw(b"PATCH", MAPS + b"/" + NAME, body, PATCHES["json"])
    assert answer.status in (400, 422)


@pytest.mark.parametrize(
    "fields",
    [b'"text"', b"[1]", b"5", b'{"f:a":5}', b'{"a":{}}', b'{"k:x":{}}', b'{"k:5":{}}',
     b'{".":{"f:a":{}}}', b'{"v:":{}}', b'{"i:x":{}}', b'{"f:a":{"f:b":null}}'],
)  # fmt: skip
async def test_unreadable_managed_fields_count_as_not_sent(raw: Raw, fields: bytes) -> None:
    path = MAPS + b"/" + NAME
    put = b'{"metadata":{"name":"%s"},"data":{"a":"1"}}' % NAME
    before = (await raw(b"PUT", path, put)).body["metadata"]["managedFields"]
    entry = b'{"manager":"x","operation":"Update","apiVersion":"v1","fieldsV1":%s}' % fields
    body = b'{"metadata":{"name":"%s","managedFields":[%s]},"data":{"a":"2"}}' % (NAME, entry)
    answer = await raw(b"PUT", path, body)
    assert answer.status == 200
    assert answer.body["data"] == {"a": "2"}
    managers = [field["manager"] for field in answer.body["metadata"]["managedFields"]]
    assert managers == [owner["manager"] for owner in before]


async def test_compressed_bodies_are_refused_as_they_are(raw: Raw) -> None:
    # Unpacked, 3 MB of zeros would be 3 GB.
    answer = await raw(b"POST", MAPS, b"\x1f\x8b" * 1000, JSON, b"Content-Encoding: gzip")
    assert answer.status == 415


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (b"/api/v1/namespaces", b'{"metadata":{"name":"n","finalizers":[null]}}', 422),
        (
            b"/apis/authorization.k8s.io/v1/subjectaccessreviews",
            b'{"spec":{"user":"u","groups":[null],"extra":{"a":null},'
            b'"nonResourceAttributes":{"path":"/","verb":"get"}}}',
            201,
        ),
        (
            b"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
            b'{"metadata":{"name":"s","finalizers":[null]},"addressType":"IPv4",'
            b'"endpoints":[{"addresses":[null]},null],"ports":[null]}',
            422,
        ),
        (
            b"/apis/rbac.authorization.k8s.io/v1/clusterroles",
            b'{"metadata":{"name":"r"},"rules":[null,{"verbs":[null],"apiGroups":[null]}]}',
            422,
        ),
    ],
)
async def test_null_in_a_list_is_a_zero_value(
    raw: Raw, path: bytes, body: bytes, status: int
) -> None:
    assert (await raw(b"POST", path, body)).status == status
