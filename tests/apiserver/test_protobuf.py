"""Answers in protobuf: every verb, errors, watches, and what has no such form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moorage.apiserver.registry.codec import RESOURCE
from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.schema.protobuf import ProtobufDecoder, fields_of, open_envelope
from moorage.apiserver.registry.schema.protobuf_encoder import ProtobufEncoder, enveloped
from moorage.apiserver.storage import SqliteStore
from tests.apiserver.running_server import Answer, Running, serving
from tests.apiserver.server.test_custom_resources import (
    CRDS,
    TABS,
    definition,
    is_established,
    tab,
    until,
)

PROTOBUF = "application/vnd.kubernetes.protobuf"
METADATA = f"{PROTOBUF};as=PartialObjectMetadata{{}};g=meta.k8s.io;v=v1"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
CLASS = "io.k8s.api.node.v1.RuntimeClass"
MERGE = "application/merge-patch+json"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
SCHEMA = load_schema()
SCHEMA.add((RESOURCE,))
DECODER = ProtobufDecoder(SCHEMA)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path, runs=True) as running:
        yield running


def opened(answer: Answer, kind: str, api_version: str, type_name: str) -> dict[str, Any]:
    """The document of an answer, which must be of that kind."""
    assert answer.headers["Content-Type"] == PROTOBUF, answer.body
    return message(answer.body, kind, api_version, type_name)


def message(body: bytes, kind: str, api_version: str, type_name: str) -> dict[str, Any]:
    envelope = open_envelope(body)
    assert (envelope.kind, envelope.api_version) == (kind, api_version)
    return DECODER.decode(type_name, envelope.raw)


def items(answer: Answer, kind: str, api_version: str) -> tuple[dict[str, Any], list[bytes]]:
    """The metadata of a list and the messages of its items."""
    assert answer.headers["Content-Type"] == PROTOBUF, answer.body
    envelope = open_envelope(answer.body)
    assert (envelope.kind, envelope.api_version) == (kind, api_version)
    (number, head), *rest = fields_of(envelope.raw)
    assert number == 1
    assert isinstance(head, bytes)
    return DECODER.decode(f"{META}.ListMeta", head), [
        value for number, value in rest if number == 2 and isinstance(value, bytes)
    ]


def a_class(name: str, handler: str = "runc") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"a": "b"}}, "handler": handler,
        "overhead": {"podFixed": {"cpu": "250m"}},
    }  # fmt: skip


def without_kind(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in ("kind", "apiVersion")}


async def test_every_verb_answers_as_in_json(server: Running) -> None:
    raw = enveloped(
        "node.k8s.io/v1", "RuntimeClass", ProtobufEncoder(SCHEMA).encode(CLASS, a_class("a"))
    )
    created = await server.ask("POST", CLASSES, raw, Content_Type=PROTOBUF, Accept=PROTOBUF)
    assert created.status == 201
    in_json = (await server.ask("GET", f"{CLASSES}/a")).json
    about = ("RuntimeClass", "node.k8s.io/v1", CLASS)
    assert opened(created, *about) == without_kind(in_json)
    both = f"{PROTOBUF},application/json"
    assert opened(await server.ask("GET", f"{CLASSES}/a", Accept=both), *about) == without_kind(
        in_json
    )
    patched = await server.ask(
        "PATCH", f"{CLASSES}/a", {"metadata": {"labels": {"c": "d"}}}, Accept=both,
        Content_Type="application/merge-patch+json",
    )  # fmt: skip
    assert opened(patched, *about)["metadata"]["labels"] == {"a": "b", "c": "d"}
    changed = opened(await server.ask("GET", f"{CLASSES}/a", Accept=PROTOBUF), *about)
    assert changed["metadata"]["resourceVersion"] != in_json["metadata"]["resourceVersion"]
    changed["metadata"]["labels"] = {}
    put = await server.ask("PUT", f"{CLASSES}/a", changed, Accept=PROTOBUF)
    assert "labels" not in opened(put, *about)["metadata"]
    deleted = await server.ask("DELETE", f"{CLASSES}/a", Accept=PROTOBUF)
    status = opened(deleted, "Status", "v1", f"{META}.Status")
    assert status["status"] == "Success"
    assert status["details"]["name"] == "a"


async def test_a_list_and_the_collection_that_is_deleted(server: Running) -> None:
    for name in ("a", "b", "c"):
        await server.ask("POST", CLASSES, a_class(name))
    in_json = (await server.ask("GET", CLASSES)).json
    answer = await server.ask("GET", CLASSES, Accept=PROTOBUF)
    meta, messages = items(answer, "RuntimeClassList", "node.k8s.io/v1")
    assert meta == in_json["metadata"]
    assert [DECODER.decode(CLASS, raw) for raw in messages] == in_json["items"]
    page = await server.ask("GET", f"{CLASSES}?limit=2", Accept=PROTOBUF)
    meta, messages = items(page, "RuntimeClassList", "node.k8s.io/v1")
    assert len(messages) == 2
    assert meta["remainingItemCount"] == 1
    assert meta["continue"]
    gone = await server.ask("DELETE", CLASSES, Accept=PROTOBUF)
    assert len(items(gone, "RuntimeClassList", "node.k8s.io/v1")[1]) == 3
    empty = await server.ask("GET", CLASSES, Accept=PROTOBUF)
    assert items(empty, "RuntimeClassList", "node.k8s.io/v1")[1] == []


async def test_a_version_that_differs_is_converted(server: Running) -> None:
    await server.ask("POST", CLASSES, a_class("a"))
    alpha = CLASSES.replace("/v1/", "/v1alpha1/")
    type_name = CLASS.replace(".v1.", ".v1alpha1.")
    one = opened(
        await server.ask("GET", f"{alpha}/a", Accept=PROTOBUF),
        "RuntimeClass", "node.k8s.io/v1alpha1", type_name,
    )  # fmt: skip
    assert one["spec"]["runtimeHandler"] == "runc"
    listed = await server.ask("GET", alpha, Accept=PROTOBUF)
    (raw,) = items(listed, "RuntimeClassList", "node.k8s.io/v1alpha1")[1]
    assert DECODER.decode(type_name, raw) == one


async def test_a_long_list_is_sent_in_chunks_and_compressed(server: Running) -> None:
    for number in range(60):
        text = f"{number:04d}" * 1000
        await server.ask("POST", "/api/v1/namespaces/default/configmaps",
                         {"metadata": {"name": f"m{number}"}, "data": {"k": text}})  # fmt: skip
    path = "/api/v1/namespaces/default/configmaps"
    for encoding in ("identity", "gzip"):
        answer = await server.ask("GET", path, Accept=PROTOBUF, Accept_Encoding=encoding)
        assert answer.headers["Transfer-Encoding"] == "chunked"
        assert answer.headers.get("Content-Encoding") == ("gzip" if encoding == "gzip" else None)
        messages = items(answer, "ConfigMapList", "v1")[1]
        assert len(messages) == len((await server.ask("GET", path)).json["items"])


@pytest.mark.parametrize(
    ("method", "path", "body", "token", "code"),
    [
        ("GET", f"{CLASSES}/absent", None, "admin-token", 404),
        ("POST", CLASSES, {"metadata": {"name": "a"}}, "admin-token", 422),
        ("DELETE", CLASSES, None, "agent-token", 403),
        ("GET", CLASSES, None, "wrong", 401),
        ("GET", "/apis/node.k8s.io/v1/odd", None, "admin-token", 404),
        ("POST", CLASSES, b"{", "admin-token", 415),
    ],
)
async def test_errors(
    server: Running, method: str, path: str, body: Any, token: str, code: int
) -> None:
    in_json = await server.ask(method, path, body, token=token)
    answer = await server.ask(method, path, body, token=token, Accept=PROTOBUF)
    assert answer.status == in_json.status == code
    status = opened(answer, "Status", "v1", f"{META}.Status")
    expected = without_kind(in_json.json)
    assert {key: value for key, value in status.items() if value} == {
        key: value for key, value in expected.items() if value
    }


async def test_metadata_alone(server: Running) -> None:
    created = (await server.ask("POST", CLASSES, a_class("a"))).json
    one = await server.ask("GET", f"{CLASSES}/a", Accept=METADATA.format(""))
    partial = opened(one, "PartialObjectMetadata", "meta.k8s.io/v1", RESOURCE.name)
    assert partial == {"metadata": created["metadata"]}
    listed = await server.ask("GET", CLASSES, Accept=METADATA.format("List"))
    (raw,) = items(listed, "PartialObjectMetadataList", "meta.k8s.io/v1")[1]
    assert DECODER.decode(RESOURCE.name, raw) == partial
    wrong = await server.ask("GET", CLASSES, Accept=METADATA.format(""))
    assert (wrong.status, wrong.json["message"]) == (
        406,
        "you requested PartialObjectMetadata, but the requested object is a list "
        "(*node.RuntimeClassList)",
    )


async def test_a_table_has_no_such_form(server: Running) -> None:
    table = f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1"
    refused = await server.ask("GET", CLASSES, Accept=table)
    assert refused.status == 406
    taken = await server.ask("GET", CLASSES, Accept=f"{table},{PROTOBUF}")
    assert items(taken, "RuntimeClassList", "node.k8s.io/v1")[1] == []


async def test_reviews_tokens_scales_and_discovery(server: Running) -> None:
    review = await server.ask(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}, Accept=PROTOBUF,
    )  # fmt: skip
    assert review.status == 201
    read = opened(
        review, "SelfSubjectAccessReview", "authorization.k8s.io/v1",
        "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    )  # fmt: skip
    assert read["status"]["allowed"]
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await server.ask("POST", accounts, {"metadata": {"name": "robot"}})
    token = await server.ask("POST", f"{accounts}/robot/token", {"spec": {}}, Accept=PROTOBUF)
    read = opened(
        token, "TokenRequest", "authentication.k8s.io/v1",
        "io.k8s.api.authentication.v1.TokenRequest",
    )  # fmt: skip
    assert read["status"]["token"].count(".") == 2
    labels = {"app": "web"}
    sets = "/apis/apps/v1/namespaces/default/replicasets"
    made = await server.ask("POST", sets, {
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    })  # fmt: skip
    assert made.status == 201, made.text
    scale = await server.ask("GET", f"{sets}/web/scale", Accept=PROTOBUF)
    read = opened(scale, "Scale", "autoscaling/v1", "io.k8s.api.autoscaling.v1.Scale")
    assert read["spec"] == {"replicas": 3}
    groups = opened(
        await server.ask("GET", "/apis", Accept=PROTOBUF), "APIGroupList", "v1",
        f"{META}.APIGroupList",
    )  # fmt: skip
    assert groups == without_kind((await server.ask("GET", "/apis")).json)


async def frames(content: aiohttp.StreamReader, count: int) -> list[tuple[str, bytes]]:
    """Read events: their types and enveloped objects."""
    events = []
    for _ in range(count):
        length = int.from_bytes(await content.readexactly(4), "big")
        fields = dict(fields_of(await content.readexactly(length)))
        type_, extension = fields[1], fields[2]
        assert isinstance(type_, bytes)
        assert isinstance(extension, bytes)
        raw = dict(fields_of(extension))[1]
        assert isinstance(raw, bytes)
        events.append((type_.decode(), raw))
    return events


@pytest.mark.parametrize("accept", [PROTOBUF, f"{PROTOBUF};stream=watch", METADATA.format("")])
async def test_a_watch_is_of_messages_after_their_length(server: Running, accept: str) -> None:
    await server.ask("POST", CLASSES, a_class("a"))
    is_whole = "as=" not in accept
    about = ("RuntimeClass", "node.k8s.io/v1", CLASS) if is_whole else (
        "PartialObjectMetadata", "meta.k8s.io/v1", RESOURCE.name
    )  # fmt: skip
    query = "watch=1&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"
    headers = {"Authorization": "Bearer admin-token", "Accept": accept}
    async with server.http.get(f"{server.url}{CLASSES}?{query}", headers=headers) as watch:
        assert watch.headers["Content-Type"] == f"{PROTOBUF};stream=watch"
        (added, first), (bookmark, mark) = await frames(watch.content, 2)
        assert (added, bookmark) == ("ADDED", "BOOKMARK")
        assert message(first, *about)["metadata"]["name"] == "a"
        annotations = message(mark, *about)["metadata"]["annotations"]
        assert annotations == {"k8s.io/initial-events-end": "true"}
        await server.ask("DELETE", f"{CLASSES}/a")
        ((deleted, last),) = await frames(watch.content, 1)
        assert deleted == "DELETED"
        assert ("handler" in message(last, *about)) is is_whole


async def test_what_a_watch_shows_of_an_object_that_left_its_selection_is_not_the_object(
    server: Running,
) -> None:
    whole = {**a_class("a"), "metadata": {"name": "a", "labels": {"in": "yes"}}}
    await server.ask("POST", CLASSES, whole)
    headers = {"Authorization": "Bearer admin-token", "Accept": PROTOBUF}
    url = f"{server.url}{CLASSES}?watch=1&labelSelector=in%3Dyes"
    about = ("RuntimeClass", "node.k8s.io/v1", CLASS)
    async with server.http.get(url, headers=headers) as watch:
        await frames(watch.content, 1)
        patch = {"metadata": {"labels": {"in": "no"}}}
        await server.ask("PATCH", f"{CLASSES}/a", patch, Content_Type=MERGE)
        ((type_, raw),) = await frames(watch.content, 1)
        last = message(raw, *about)["metadata"]
        assert (type_, last["labels"]) == ("DELETED", {"in": "yes"})
        now = opened(await server.ask("GET", f"{CLASSES}/a", Accept=PROTOBUF), *about)["metadata"]
        assert (now["labels"], now["resourceVersion"]) == ({"in": "no"}, last["resourceVersion"])


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_the_answer_to_a_dry_run_is_not_the_object(server: Running, method: str) -> None:
    kept = ["example.com/kept"] if method == "DELETE" else []
    whole = {**a_class("a"), "metadata": {"name": "a", "finalizers": kept}}
    await server.ask("POST", CLASSES, whole)
    about = ("RuntimeClass", "node.k8s.io/v1", CLASS)
    body = {"metadata": {"finalizers": ["example.com/x"]}}
    answer = await server.ask(
        method, f"{CLASSES}/a?dryRun=All", body if method == "PATCH" else None,
        Content_Type=MERGE, Accept=PROTOBUF,
    )  # fmt: skip
    assert answer.status == 200, answer.text
    now = opened(await server.ask("GET", f"{CLASSES}/a", Accept=PROTOBUF), *about)
    assert now["metadata"].get("finalizers", []) == kept
    assert "deletionTimestamp" not in now["metadata"]


async def test_an_error_in_a_watch_is_a_message_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as first:
        await first.ask("POST", CLASSES, a_class("a"))
    async with SqliteStore(tmp_path / "state.db") as store:
        await store.compact(store.revision)
    headers = {"Authorization": "Bearer admin-token", "Accept": PROTOBUF}
    async with serving(tmp_path) as server:
        url = f"{server.url}{CLASSES}?watch=1&resourceVersion=1"
        async with server.http.get(url, headers=headers) as watch:
            ((type_, raw),) = await frames(watch.content, 1)
            assert type_ == "ERROR"
            status = message(raw, "Status", "v1", f"{META}.Status")
            assert (status["code"], status["reason"]) == (410, "Expired")
            assert await watch.content.read() == b""


async def test_a_websocket_has_binary_messages(server: Running) -> None:
    await server.ask("POST", CLASSES, a_class("a"))
    headers = {"Authorization": "Bearer admin-token", "Accept": PROTOBUF}
    async with server.http.ws_connect(
        f"{server.url}{CLASSES}?watch=1", headers=headers
    ) as websocket:
        fields = dict(fields_of(await websocket.receive_bytes()))
        assert fields[1] == b"ADDED"


async def test_custom_resources_are_json(server: Running) -> None:
    assert (await server.ask("POST", CRDS, definition())).status == 201
    await until(server, CRDS + "/crontabs.stable.example.com", is_established)
    await server.ask("POST", TABS, tab())
    refused = await server.ask("GET", f"{TABS}/a", Accept=PROTOBUF)
    assert refused.status == 406
    status = opened(refused, "Status", "v1", f"{META}.Status")
    assert status["message"].startswith("only the following media types are accepted")
    for path in (TABS, f"{TABS}/a"):
        both = await server.ask("GET", path, Accept=f"{PROTOBUF},application/json")
        assert both.headers["Content-Type"] == "application/json"
    metadata = await server.ask("GET", f"{TABS}/a", Accept=METADATA.format(""))
    read = opened(metadata, "PartialObjectMetadata", "meta.k8s.io/v1", RESOURCE.name)
    assert read["metadata"]["name"] == "a"
    watched = await server.ask(
        "GET", f"{TABS}?watch=1&timeoutSeconds=1", Accept=f"{PROTOBUF},application/json"
    )
    assert watched.json["type"] == "ADDED"
    definition_read = await server.ask(
        "GET", CRDS + "/crontabs.stable.example.com", Accept=PROTOBUF
    )
    type_name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"
    read = opened(definition_read, "CustomResourceDefinition", "apiextensions.k8s.io/v1", type_name)
    in_json = (await server.ask("GET", CRDS + "/crontabs.stable.example.com")).json
    assert read["spec"]["versions"][0]["schema"] == in_json["spec"]["versions"][0]["schema"]
