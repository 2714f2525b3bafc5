"""Conversion webhooks of custom resources, called over TLS for requests through the API."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from moorage.apiserver.server.request_deadlines import CallLimits
from tests.apiserver.running_server import Answer, Running, serving
from tests.apiserver.server.test_custom_resources import CRDS, is_established, until
from tests.apiserver.webhook_server import WebhookServer, webhooks

Json = dict[str, Any]
NAME = "endpoints.stable.example.com"
V1 = "/apis/stable.example.com/v1/namespaces/default/endpoints"
V2 = "/apis/stable.example.com/v2/namespaces/default/endpoints"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
STRING = {"type": "string"}
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def version(name: str, *, is_stored: bool = False, **properties: Json) -> Json:
    return {
        "name": name, "served": True, "storage": is_stored,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }  # fmt: skip


def versions(stored: str) -> list[Json]:
    return [
        version("v1", is_stored=stored == "v1", hostPort=STRING),
        {
            **version("v2", is_stored=stored == "v2", host=STRING, port=STRING),
            "selectableFields": [{"jsonPath": ".host"}],
            "additionalPrinterColumns": [{"name": "Host", "type": "string", "jsonPath": ".host"}],
        },
    ]


def definition(hooks: WebhookServer, stored: str = "v1", **webhook: Any) -> Json:
    bundle = base64.b64encode(hooks.authority.pair.certificate.read_bytes()).decode()
    return {
        "metadata": {"name": NAME},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "endpoints", "kind": "Endpoint"},
            "versions": versions(stored),
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {"url": f"{hooks.url}/convert", "caBundle": bundle},
                    "conversionReviewVersions": ["v1", "v1beta1"],
                    **webhook,
                },
            },
        },
    }  # fmt: skip


def converted(obj: Json, target: str) -> Json:
    """What a good webhook answers for an object."""
    new = {**copy.deepcopy(obj), "apiVersion": target}
    if target.endswith("/v2"):
        host, _, port = new.pop("hostPort", ":").partition(":")
        return {**new, "host": host, "port": port}
    return {**new, "hostPort": f"{new.pop('host', '')}:{new.pop('port', '')}"}


def convert(request: Json) -> Json:
    target = request["desiredAPIVersion"]
    objects = [converted(obj, target) for obj in request["objects"]]
    return {"convertedObjects": objects, "result": {"status": "Success"}}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path, runs=True) as running:
        yield running


@pytest.fixture
async def hooks(server: Running) -> AsyncIterator[WebhookServer]:
    async with webhooks(server.authority) as served:
        served.answers["convert"] = convert
        created = await server.ask("POST", CRDS, definition(served))
        assert created.status == 201, created.text
        await until(server, f"{CRDS}/{NAME}", is_established)
        yield served


def one(name: str = "a", **fields: Any) -> Json:
    api_version = "stable.example.com/v2" if "host" in fields else "stable.example.com/v1"
    fields = fields or {"hostPort": "localhost:8080"}
    return {"apiVersion": api_version, "kind": "Endpoint", "metadata": {"name": name}, **fields}


async def add(server: Running, name: str = "a", **fields: Any) -> Answer:
    created = await server.ask("POST", V2 if "host" in fields else V1, one(name, **fields))
    assert created.status == 201, created.text
    return created


async def redefine(server: Running, change: Callable[[Json], None]) -> None:
    """Change a definition, and wait until the change is served."""
    path = f"{CRDS}/{NAME}"
    while True:
        stored = (await server.ask("GET", path)).json
        change(stored["spec"])
        answer = await server.ask("PUT", path, stored)
        if answer.status != 409:
            break
    assert answer.status == 200, answer.text
    generation = answer.json["metadata"]["generation"]
    del generation


def use(stored: str) -> Callable[[Json], None]:
    def change(spec: Json) -> None:
        spec["versions"] = versions(stored)

    return change


async def test_an_object_is_read_in_another_version(server: Running, hooks: WebhookServer) -> None:
    created = await add(server)
    assert not hooks.asked
    read = (await server.ask("GET", f"{V2}/a")).json
    assert read == {
        "kind": "Endpoint", "apiVersion": "stable.example.com/v2",
        "metadata": created.json["metadata"], "host": "localhost", "port": "8080",
    }  # fmt: skip
    ((_, review),) = hooks.asked
    assert (review["apiVersion"], review["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert review["request"]["desiredAPIVersion"] == "stable.example.com/v2"
    assert review["request"]["objects"] == [created.json]
    assert review["response"] == {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}
    assert set(review["request"]) == {"uid", "desiredAPIVersion", "objects"}
    await server.ask("GET", f"{V2}/a")
    assert len(hooks.asked) == 1, "what was converted is remembered"


async def test_an_object_is_written_in_another_version(
    server: Running, hooks: WebhookServer
) -> None:
    del hooks
    created = await add(server, host="h", port="1")
    assert (created.json["host"], created.json["port"]) == ("h", "1")
    assert (await server.ask("GET", f"{V1}/a")).json["hostPort"] == "h:1"
    put = await server.ask("PUT", f"{V2}/a", {**created.json, "port": "2"})
    assert put.status == 200, put.text
    assert put.json["port"] == "2"
    patched = await server.ask("PATCH", f"{V2}/a", {"host": "g"}, Content_Type=MERGE)
    assert (patched.json["host"], patched.json["metadata"]["generation"]) == ("g", 3)
    assert (await server.ask("GET", f"{V1}/a")).json["hostPort"] == "g:2"
    dry = await server.ask("PATCH", f"{V2}/a?dryRun=All", {"host": "x"}, Content_Type=MERGE)
    assert dry.json["host"] == "x"
    assert (await server.ask("GET", f"{V1}/a")).json["hostPort"] == "g:2"


async def test_fields_of_a_version_are_owned_in_it(server: Running, hooks: WebhookServer) -> None:
    del hooks
    applied = await server.ask(
        "PATCH", f"{V2}/a?fieldManager=x", one(host="h", port="1"), Content_Type=APPLY
    )
    assert applied.status == 201, applied.text
    old = await server.ask(
        "PATCH", f"{V1}/a?fieldManager=y", one(hostPort="g:2"), Content_Type=APPLY
    )
    assert old.status == 409, old.text
    forced = await server.ask(
        "PATCH", f"{V1}/a?fieldManager=y&force=1", one(hostPort="g:2"), Content_Type=APPLY
    )
    entries = forced.json["metadata"]["managedFields"]
    assert [(entry["manager"], entry["apiVersion"]) for entry in entries] == [
        ("y", "stable.example.com/v1")
    ]
    assert (await server.ask("GET", f"{V2}/a")).json["host"] == "g"


async def test_a_list_has_objects_of_several_stored_versions(
    server: Running, hooks: WebhookServer
) -> None:
    await add(server, "a")
    await redefine(server, use("v2"))
    await until(
        server, f"{CRDS}/{NAME}", lambda it: it.json["status"]["storedVersions"] == ["v1", "v2"]
    )
    await _until_stored_as_v2(server, hooks)
    for path, expected in ((V1, {"hostPort": "localhost:8080"}),
                           (V2, {"host": "localhost", "port": "8080"})):  # fmt: skip
        items = (await server.ask("GET", path)).json["items"]
        assert [item["metadata"]["name"] for item in items] == ["a", "b"]
        for item in items:
            del item["metadata"], item["kind"], item["apiVersion"]
            assert item == expected


async def _until_stored_as_v2(server: Running, hooks: WebhookServer) -> None:
    """Create `b` by v1 until the webhook is asked for v2 to store it."""
    async with asyncio.timeout(10):
        while True:
            hooks.asked.clear()
            await add(server, "b")
            if any(r["desiredAPIVersion"].endswith("v2") for r in hooks.requests("convert")):
                return
            await server.ask("DELETE", f"{V1}/b")


async def test_an_update_without_change_moves_an_object_to_the_storage_version(
    server: Running, hooks: WebhookServer
) -> None:
    created = (await add(server, "a")).json
    await redefine(server, use("v2"))
    await _until_stored_as_v2(server, hooks)
    moved = await server.ask("PUT", f"{V1}/a", created)
    assert moved.status == 200, moved.text
    assert moved.json["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    again = await server.ask("PUT", f"{V1}/a", moved.json)
    assert again.json["metadata"]["resourceVersion"] == moved.json["metadata"]["resourceVersion"]
    hooks.asked.clear()
    assert (await server.ask("GET", f"{V2}/a")).json["host"] == "localhost"
    assert not hooks.asked


async def test_objects_are_selected_and_printed_in_the_version_of_the_request(
    server: Running, hooks: WebhookServer
) -> None:
    del hooks
    await add(server, "a", hostPort="x:1")
    await add(server, "b", hostPort="y:1")
    selected = await server.ask("GET", f"{V2}?fieldSelector=host%3Dy")
    assert [item["metadata"]["name"] for item in selected.json["items"]] == ["b"]
    refused = await server.ask("GET", f"{V1}?fieldSelector=host%3Dy")
    assert (refused.status, refused.json["message"]) == (400, "field label not supported: host")
    page = await server.ask("GET", f"{V2}?limit=1")
    assert page.json["items"][0]["host"] == "x"
    rest = await server.ask("GET", f"{V2}?limit=1&continue={page.json['metadata']['continue']}")
    assert rest.json["items"][0]["host"] == "y"
    table = await server.ask("GET", V2, Accept="application/json;as=Table;g=meta.k8s.io;v=v1")
    assert [column["name"] for column in table.json["columnDefinitions"]] == ["Name", "Host"]
    assert [row["cells"] for row in table.json["rows"]] == [["a", "x"], ["b", "y"]]


async def test_a_watch_has_events_in_its_version(server: Running, hooks: WebhookServer) -> None:
    del hooks
    await add(server, "a", hostPort="x:1")
    async with server.opened(f"{V2}?watch=1&fieldSelector=host%3Dx") as stream:
        seen = [await _event(stream)]
        await add(server, "b", hostPort="y:1")
        for body in ({"hostPort": "x:2"}, {"hostPort": "y:2"}, {"hostPort": "x:3"}):
            await server.ask("PATCH", f"{V1}/b", body, Content_Type=MERGE)
            seen.append(await _event(stream))
        await server.ask("DELETE", f"{V1}/b")
        seen.append(await _event(stream))
    assert seen == [
        ("ADDED", "a", "x"), ("ADDED", "b", "x"), ("DELETED", "b", "x"), ("ADDED", "b", "x"),
        ("DELETED", "b", "x"),
    ]  # fmt: skip


async def _event(stream: Any) -> tuple[str, str, str]:
    event = json.loads(await stream.content.readline())
    obj = event["object"]
    assert obj["apiVersion"] == "stable.example.com/v2"
    return event["type"], obj["metadata"]["name"], obj["host"]


SUCCESS = {"status": "Success"}
FAILED = "conversion webhook for stable.example.com/v1, Kind=Endpoint "


def changed(**changes: Any) -> Callable[[Json], Json]:
    def answer(request: Json) -> Json:
        new = [{**converted(obj, request["desiredAPIVersion"]), **changes}
               for obj in request["objects"]]  # fmt: skip
        return {"convertedObjects": new, "result": SUCCESS}

    return answer


def with_metadata(**changes: Any) -> Callable[[Json], Json]:
    def answer(request: Json) -> Json:
        (obj,) = request["objects"]
        new = converted(obj, request["desiredAPIVersion"])
        new["metadata"] |= changes
        return {"convertedObjects": [new], "result": SUCCESS}

    return answer


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda _: {"result": {"status": "Failure", "message": "no way"}}, "failed: no way"),
        (lambda _: {"result": {"status": "Failure"}},
         "failed: response.result.status was 'Failure', not 'Success'"),
        (lambda _: {"convertedObjects": [], "result": SUCCESS}, "returned 0 objects, expected 1"),
        (lambda _: {"uid": "other", "result": SUCCESS}, 'failed: expected response.uid="'),
        (lambda _: b"{}", "failed: expected webhook response of apiextensions.k8s.io/v1, "
                          "Kind=ConversionReview, got , Kind="),
        (lambda _: b"[" * 9, "failed: the answer is not a ConversionReview: "),
        (changed(apiVersion="stable.example.com/v1"),
         "returned invalid object at index 0: invalid groupVersion (expected "
         "stable.example.com/v2, received stable.example.com/v1)"),
        (changed(kind="Other"), "returned invalid object at index 0: invalid kind (expected "
                                "Endpoint, received Other)"),
        (lambda _: {"convertedObjects": [7], "result": SUCCESS},
         "returned invalid object at index 0: Object 'Kind' is missing in '7'"),
        (with_metadata(name="b"),
         "returned invalid object: must have the same name: a != b"),
        (with_metadata(namespace="b"),
         "returned invalid object: must have the same namespace: default != b"),
        (with_metadata(uid="b"), "returned invalid object: must have the same UID: "),
        (with_metadata(labels=7),
         "returned invalid metadata: invalid metadata.labels of type int64 in converted object"),
        (with_metadata(labels={"a": 7}), "returned invalid metadata: metadata.labels[a] must be a "
                                         "string, but is int64 in converted object"),
        (with_metadata(labels={"-": ""}),
         'returned invalid metadata: metadata.labels: Invalid value: "-": name part must consist'),
        (with_metadata(annotations={"-": ""}),
         'returned invalid metadata: metadata.annotation: Invalid value: "-": name part must'),
    ],
)  # fmt: skip
async def test_a_bad_answer_is_an_error_that_says_why(
    server: Running, hooks: WebhookServer, answer: Any, says: str
) -> None:
    await add(server)
    hooks.answers["convert"] = answer
    read = await server.ask("GET", f"{V2}/a")
    assert (read.status, read.json.get("reason")) == (500, None)
    assert read.json["message"].startswith(FAILED + says), read.text
    listed = await server.ask("GET", V2)
    assert listed.status == 500
    assert listed.json["message"].startswith(FAILED)
    assert (await server.ask("GET", f"{V1}/a")).status == 200


async def test_only_labels_and_annotations_of_the_metadata_are_taken(
    server: Running, hooks: WebhookServer
) -> None:
    created = (await add(server)).json["metadata"]
    hooks.answers["convert"] = with_metadata(
        labels={"l": "1"}, annotations={"a": "2"}, finalizers=["x/y"], generation=9
    )
    read = (await server.ask("GET", f"{V2}/a")).json["metadata"]
    assert read == created | {"labels": {"l": "1"}, "annotations": {"a": "2"}}
    selected = await server.ask("GET", f"{V2}?labelSelector=l")
    assert len(selected.json["items"]) == 1
    assert not (await server.ask("GET", f"{V1}?labelSelector=l")).json["items"]


async def test_v1beta1_is_asked_where_a_webhook_knows_no_other(
    server: Running, hooks: WebhookServer
) -> None:
    def only_v1beta1(spec: Json) -> None:
        spec["conversion"]["webhook"]["conversionReviewVersions"] = ["v9", "v1beta1"]

    await add(server)
    await redefine(server, only_v1beta1)

    port = 0
    async with asyncio.timeout(10):
        while not hooks.asked or hooks.asked[-1][1]["apiVersion"].endswith("/v1"):
            port += 1
            body = {"hostPort": f"h:{port}"}
            await server.ask("PATCH", f"{V1}/a", body, Content_Type=MERGE)
            assert (await server.ask("GET", f"{V2}/a")).json["port"] == str(port)


async def test_a_webhook_that_hangs_delays_nothing_else(
    server: Running, hooks: WebhookServer
) -> None:
    released = asyncio.Event()

    async def hang(request: Json) -> Json:
        await released.wait()
        return convert(request)

    await add(server)
    hooks.answers["convert"] = lambda request: hang(request)
    async with server.opened(f"{V2}?watch=1") as stream:
        waiting = [asyncio.create_task(server.ask("GET", path)) for path in (f"{V2}/a", V2)]
        created = await add(server, "b")
        assert created.status == 201
        assert (await server.ask("GET", V1)).status == 200
        assert not any(task.done() for task in waiting)
        released.set()
        assert [(await task).status for task in waiting] == [200, 200]
        assert [(await _event(stream))[1] for _ in "ab"] == ["a", "b"]


async def test_a_webhook_that_answers_too_late_is_an_error(tmp_path: Path) -> None:
    limits = CallLimits(conversion_s=0.2)
    async with (
        serving(tmp_path, runs=True, call_limits=limits) as server,
        webhooks(server.authority) as hooks,
    ):
        hooks.answers["convert"] = lambda _: asyncio.sleep(5)
        await server.ask("POST", CRDS, definition(hooks))
        await until(server, f"{CRDS}/{NAME}", is_established)
        await add(server)
        read = await server.ask("GET", f"{V2}/a")
        assert (read.status, read.json["message"]) == (
            500, f'{FAILED}failed: Post "{hooks.url}/convert": context deadline exceeded',
        )  # fmt: skip


async def test_what_is_deleted_and_released_needs_no_conversion(
    server: Running, hooks: WebhookServer
) -> None:
    await add(server)
    hooks.answers["convert"] = lambda _: {"result": {"status": "Failure", "message": "broken"}}
    hooks.asked.clear()
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    patched = await server.ask("PATCH", f"{V2}/a", held, Content_Type=MERGE, Accept=PARTIAL)
    assert (patched.status, patched.json["kind"]) == (200, "PartialObjectMetadata"), patched.text
    listed = await server.ask("GET", V2, Accept=PARTIAL_LIST)
    assert [item["metadata"]["name"] for item in listed.json["items"]] == ["a"]
    deleted = await server.ask("DELETE", f"{V2}/a", Accept=PARTIAL)
    assert "deletionTimestamp" in deleted.json["metadata"]
    released = {"metadata": {"finalizers": None}}
    assert not hooks.asked
    gone = await server.ask("PATCH", f"{V2}/a", released, Content_Type=MERGE, Accept=PARTIAL)
    assert gone.status == 200, gone.text
    assert (await server.ask("GET", f"{V1}/a")).status == 404
    assert not hooks.asked


async def test_a_deletion_succeeds_that_cannot_be_shown(
    server: Running, hooks: WebhookServer
) -> None:
    body = one()
    body["metadata"]["finalizers"] = ["example.com/held"]
    assert (await server.ask("POST", V1, body)).status == 201
    await add(server, "b")
    hooks.answers["convert"] = lambda _: {"result": {"status": "Failure", "message": "broken"}}
    marked = await server.ask("DELETE", f"{V2}/a")
    assert (marked.status, marked.json["status"]) == (200, "Success")
    assert "broken" in marked.headers["Warning"]
    assert "deletionTimestamp" in (await server.ask("GET", f"{V1}/a")).json["metadata"]
    everything = await server.ask("DELETE", V2)
    assert (everything.status, everything.json["status"]) == (200, "Success")
    assert (await server.ask("GET", f"{V1}/b")).status == 404


async def test_a_definition_ends_while_its_webhook_is_broken(
    server: Running, hooks: WebhookServer
) -> None:
    await add(server)
    await redefine(server, use("v2"))
    await _until_stored_as_v2(server, hooks)
    hooks.answers["convert"] = lambda _: {"result": {"status": "Failure", "message": "broken"}}
    await server.ask("DELETE", f"{CRDS}/{NAME}")
    await until(server, f"{CRDS}/{NAME}", lambda answer: answer.status == 404)


async def test_a_watch_ends_with_an_error_when_conversion_fails(
    server: Running, hooks: WebhookServer
) -> None:
    async with server.opened(f"{V2}?watch=1") as stream:
        hooks.answers["convert"] = lambda _: {"result": {"status": "Failure", "message": "broken"}}
        await add(server)
        event = json.loads(await stream.content.readline())
        assert (event["type"], event["object"]["code"]) == ("ERROR", 500)
        assert event["object"]["message"] == f"{FAILED}failed: broken"
        assert not await stream.content.readline()
