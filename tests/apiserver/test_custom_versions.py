"""Versions and changed schemas of custom resources, without a webhook."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.running_server import Answer, Running, serving
from tests.apiserver.server.test_custom_resources import CRDS, is_established, until

Json = dict[str, Any]
NAME = "things.example.com"
MERGE = "application/merge-patch+json"
V1 = "/apis/example.com/v1/namespaces/default/things"
V2 = "/apis/example.com/v2/namespaces/default/things"
INTEGER = {"type": "integer"}
STRING = {"type": "string"}


def version(name: str, spec: Json, *, is_stored: bool = False, **more: Any) -> Json:
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return {"name": name, "served": True, "storage": is_stored,
            "schema": {"openAPIV3Schema": schema}, **more}  # fmt: skip


def definition(*versions: Json) -> Json:
    return {
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": list(versions),
            "names": {"plural": "things", "kind": "Thing"},
        },
    }  # fmt: skip


def thing(name: str = "a", api_version: str = "example.com/v1", **spec: Any) -> Json:
    return {"apiVersion": api_version, "kind": "Thing", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path, runs=True) as running:
        yield running


async def define(server: Running, *versions: Json) -> None:
    created = await server.ask("POST", CRDS, definition(*versions))
    assert created.status == 201, created.text
    await until(server, f"{CRDS}/{NAME}", is_established)


async def redefine(server: Running, *versions: Json) -> None:
    stored = (await server.ask("GET", f"{CRDS}/{NAME}")).json
    stored["spec"]["versions"] = list(versions)
    answer = await server.ask("PUT", f"{CRDS}/{NAME}", stored)
    assert answer.status == 200, answer.text


async def test_a_stored_object_gets_defaults_that_came_later(server: Running) -> None:
    await define(server, version("v1", {"a": STRING, "old": STRING}, is_stored=True))
    created = await server.ask("POST", V1, thing(a="1", old="x"))
    revision = created.json["metadata"]["resourceVersion"]
    await redefine(
        server, version("v1", {"a": STRING, "b": {**INTEGER, "default": 7}}, is_stored=True)
    )
    read = await until(server, f"{V1}/a", lambda answer: "b" in answer.json["spec"])
    assert read.json["spec"] == {"a": "1", "b": 7}
    assert read.json["metadata"]["resourceVersion"] == revision
    (item,) = (await server.ask("GET", V1)).json["items"]
    assert item["spec"] == {"a": "1", "b": 7}
    async with server.opened(f"{V1}?watch=1") as stream:
        event = json.loads(await stream.content.readline())
        assert event["object"]["spec"] == {"a": "1", "b": 7}
        patched = await server.ask("PATCH", f"{V1}/a", {"spec": {"a": "2"}}, Content_Type=MERGE)
        assert patched.json["spec"] == {"a": "2", "b": 7}
        event = json.loads(await stream.content.readline())
        assert event["object"]["spec"] == {"a": "2", "b": 7}


async def test_versions_are_marked_again_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path, runs=True) as server:
        await define(server, version("v1", {"a": STRING}, is_stored=True))
        await server.ask("POST", V1, thing(a="1"))
    async with serving(tmp_path, runs=True) as server:
        read = await server.ask("GET", f"{V1}/a")
        assert (read.json["spec"], read.json["metadata"]["name"]) == ({"a": "1"}, "a")


async def test_each_version_has_its_own_schema(server: Running) -> None:
    v1 = version("v1", {"a": INTEGER}, is_stored=True)
    v2 = version("v2", {"a": {**INTEGER, "maximum": 5}, "b": {**STRING, "default": "d"}})
    await define(server, v1, v2)
    assert (await server.ask("POST", V1, thing(a=9))).json["spec"] == {"a": 9}
    refused = await server.ask("POST", V2, thing("b", "example.com/v2", a=9))
    assert "spec.a in body should be less than or equal to 5" in refused.json["message"]
    created = await server.ask("POST", V2, thing("b", "example.com/v2", a=1, b="x"))
    # Stored as v1, whose schema has no b: so it is upstream.
    assert created.json["spec"] == {"a": 1}
    assert (await server.ask("GET", f"{V2}/a")).json["spec"] == {"a": 9}
    strict = await server.ask("POST", f"{V1}?fieldValidation=Strict", thing("c", a=1, b="x"))
    assert strict.status == 400
    assert 'unknown field "spec.b"' in strict.json["message"]


async def test_subresources_and_columns_are_those_of_the_version(server: Running) -> None:
    paths = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    v1 = version("v1", {"n": INTEGER, "m": INTEGER}, is_stored=True, subresources={"status": {}})
    v2 = version(
        "v2", {"n": INTEGER, "m": INTEGER, "o": STRING}, subresources={"scale": paths},
        additionalPrinterColumns=[{"name": "N", "type": "integer", "jsonPath": ".spec.n"}],
        selectableFields=[{"jsonPath": ".spec.m"}],
    )  # fmt: skip
    await define(server, v1, v2)
    await server.ask("POST", V1, thing(n=3, m=1))
    assert (await server.ask("GET", f"{V1}/a/status")).status == 200
    assert (await server.ask("GET", f"{V1}/a/scale")).status == 404
    assert (await server.ask("GET", f"{V2}/a/status")).status == 404
    assert (await server.ask("GET", f"{V2}/a/scale")).json["spec"] == {"replicas": 3}
    for path, status, names in ((V2, 200, ["a"]), (V1, 400, None)):
        selected = await server.ask("GET", f"{path}?fieldSelector=spec.m%3D1")
        assert selected.status == status
        if names:
            assert [item["metadata"]["name"] for item in selected.json["items"]] == names

    def parts(answer: Answer) -> list[str]:
        return [entry["name"] for entry in answer.json["resources"]]

    assert parts(await server.ask("GET", "/apis/example.com/v1")) == ["things", "things/status"]
    assert parts(await server.ask("GET", "/apis/example.com/v2")) == ["things", "things/scale"]
    hashes = {
        (await server.ask("GET", f"/apis/example.com/{name}")).json["resources"][0][
            "storageVersionHash"
        ]
        for name in ("v1", "v2")
    }
    assert len(hashes) == 1
    # In v2 the status is a field like any other.
    written = await server.ask("PATCH", f"{V2}/a", {"status": {"n": 2}}, Content_Type=MERGE)
    assert written.json["status"] == {"n": 2}


async def test_a_version_that_is_dropped_leaves_its_objects_unreadable(server: Running) -> None:
    v1, v2 = version("v1", {}, is_stored=True), version("v2", {})
    await define(server, v1, v2)
    await server.ask("POST", V1, thing())
    await redefine(server, {**v1, "storage": False}, {**v2, "storage": True})
    stored = (await server.ask("GET", f"{CRDS}/{NAME}")).json
    stored["status"]["storedVersions"] = ["v2"]
    assert (await server.ask("PUT", f"{CRDS}/{NAME}/status", stored)).status == 200
    await redefine(server, {**v2, "storage": True})
    lost = await until(server, f"{V2}/a", lambda answer: answer.status == 500)
    says = "request to convert CR from an invalid group/version: example.com/v1"
    assert lost.json["message"] == says
    assert (await server.ask("GET", V2)).json["message"] == says
    deleted = await server.ask("DELETE", f"{V2}/a")
    assert deleted.status == 200
    assert (await server.ask("GET", V2)).json["items"] == []


async def test_a_definition_that_ends_refuses_new_objects(server: Running) -> None:
    await define(server, version("v1", {}, is_stored=True))
    held = thing()
    held["metadata"]["finalizers"] = ["example.com/held"]
    assert (await server.ask("POST", V1, held)).status == 201
    await server.ask("DELETE", f"{CRDS}/{NAME}")

    def terminating(answer: Answer) -> tuple[str, str]:
        return next(
            (entry["status"], entry["reason"]) for entry in answer.json["status"]["conditions"]
            if entry["type"] == "Terminating"
        )  # fmt: skip

    await until(
        server, f"{CRDS}/{NAME}",
        lambda answer: terminating(answer) == ("True", "InstanceDeletionInProgress"),
    )  # fmt: skip
    refused = await server.ask("POST", V1, thing("b"))
    assert (refused.status, refused.json["message"]) == (
        403, 'things.example.com "b" is forbidden: create not allowed while custom resource '
             "definition is terminating",
    )  # fmt: skip
    patch = {"metadata": {"finalizers": None}}
    assert (await server.ask("PATCH", f"{V1}/a", patch, Content_Type=MERGE)).status == 200
    await until(server, f"{CRDS}/{NAME}", lambda answer: answer.status == 404)


async def test_a_group_of_kubernetes_says_whether_it_is_approved(server: Running) -> None:
    body = definition(version("v1", {}, is_stored=True))
    body["spec"]["group"] = "x.k8s.io"
    reason = "unapproved, a test"
    body["metadata"] = {
        "name": "things.x.k8s.io", "annotations": {"api-approved.kubernetes.io": reason},
    }  # fmt: skip
    assert (await server.ask("POST", CRDS, body)).status == 201
    found = await until(server, f"{CRDS}/things.x.k8s.io", is_established_though_unapproved)
    (condition,) = [
        entry for entry in found.json["status"]["conditions"]
        if entry["type"] == "KubernetesAPIApprovalPolicyConformant"
    ]  # fmt: skip
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False", "UnapprovedAnnotation", f'not approved: "{reason}"',
    )  # fmt: skip


def is_established_though_unapproved(answer: Answer) -> bool:
    conditions = answer.json.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Established" for entry in conditions)


async def test_versions_of_any_name_are_discovered_last(server: Running) -> None:
    await define(server, version("latest", {}, is_stored=True), version("v1", {}))
    group = (await server.ask("GET", "/apis/example.com")).json
    assert [entry["version"] for entry in group["versions"]] == ["v1", "latest"]


async def test_metadata_of_embedded_resources_is_checked(server: Running) -> None:
    embedded = {
        "type": "object", "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }  # fmt: skip
    await define(server, version("v1", {"template": embedded}, is_stored=True))
    template = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "odd": 1}, "spec": {"x": 1},
    }  # fmt: skip
    created = await server.ask("POST", V1, thing(template=template))
    assert created.status == 201, created.text
    assert created.json["spec"]["template"] == {**template, "metadata": {"name": "p"}}
    assert "spec.template.metadata.odd" in created.headers["Warning"]
    strict = await server.ask("POST", f"{V1}?fieldValidation=Strict", thing("b", template=template))
    assert 'unknown field "spec.template.metadata.odd"' in strict.json["message"]
    wrong = {**template, "metadata": {"labels": 7}}
    assert (await server.ask("POST", V1, thing("c", template=wrong))).status == 400


async def test_a_patch_of_a_scale_needs_replicas_once(server: Running) -> None:
    paths = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
    await define(
        server, version("v1", {"n": INTEGER}, is_stored=True, subresources={"scale": paths})
    )
    await server.ask("POST", V1, thing())
    nothing = await server.ask("PATCH", f"{V1}/a/scale", {"metadata": {}}, Content_Type=MERGE)
    assert (nothing.status, nothing.json["message"]) == (
        400, 'the spec replicas field ".spec.n" cannot be empty',
    )  # fmt: skip
    assert (await server.ask("GET", f"{V1}/a")).json["spec"] == {}
    scaled = await server.ask(
        "PATCH", f"{V1}/a/scale", {"spec": {"replicas": 3}}, Content_Type=MERGE
    )
    assert scaled.json["spec"] == {"replicas": 3}
    again = await server.ask("PATCH", f"{V1}/a/scale", {"metadata": {}}, Content_Type=MERGE)
    assert again.json["spec"] == {"replicas": 3}
    zero = await server.ask("PATCH", f"{V1}/a/scale", {"spec": {"replicas": 0}}, Content_Type=MERGE)
    assert zero.status == 200, zero.text
    assert (await server.ask("GET", f"{V1}/a")).json["spec"] == {"n": 0}


async def test_an_update_may_keep_what_a_new_schema_forbids(server: Running) -> None:
    await define(server, version("v1", {"a": INTEGER, "b": INTEGER}, is_stored=True))
    await server.ask("POST", V1, thing(a=9))
    await redefine(
        server, version("v1", {"a": {**INTEGER, "maximum": 5}, "b": INTEGER}, is_stored=True)
    )
    await until(server, "/openapi/v2", lambda answer: '"maximum":5' in answer.text)
    assert (await server.ask("POST", V1, thing("b", a=9))).status == 422
    kept = await server.ask("PATCH", f"{V1}/a", {"spec": {"b": 1}}, Content_Type=MERGE)
    assert kept.status == 200, kept.text
    refused = await server.ask("PATCH", f"{V1}/a", {"spec": {"a": 8}}, Content_Type=MERGE)
    assert refused.status == 422


async def test_an_event_is_watched_as_the_present_definition_has_it(server: Running) -> None:
    await define(server, version("v1", {"a": STRING}, is_stored=True))
    created = await server.ask("POST", V1, thing(a="1"))
    before = int(created.json["metadata"]["resourceVersion"]) - 1

    async def first_event() -> Any:
        async with server.opened(f"{V1}?watch=1&resourceVersion={before}") as stream:
            return json.loads(await stream.content.readline())["object"]["spec"]

    assert await first_event() == {"a": "1"}
    await redefine(
        server, version("v1", {"a": STRING, "b": {**INTEGER, "default": 7}}, is_stored=True)
    )
    await until(server, f"{V1}/a", lambda answer: "b" in answer.json["spec"])
    # The event is that of before, and its frame was made before.
    assert await first_event() == {"a": "1", "b": 7}
