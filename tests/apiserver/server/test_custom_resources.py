"""Custom resources through the API: definitions, instances, and the end of both."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.running_server import Answer, Running, serving

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABS = "/apis/stable.example.com/v1/namespaces/default/crontabs"
APPLY = "application/apply-patch+yaml"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["cronSpec"],
            "properties": {
                "cronSpec": {
                    "type": "string",
                    "pattern": r"^(\d+|\*)(/\d+)?(\s+(\d+|\*)(/\d+)?){4}$",
                },
                "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    },
}


def definition(**changes: Any) -> dict[str, Any]:
    version = {
        "name": "v1", "served": True, "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
        ],
    }  # fmt: skip
    spec = {
        "group": "stable.example.com", "scope": "Namespaced", "versions": [version],
        "names": {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"]},
    }  # fmt: skip
    return {"metadata": {"name": "crontabs.stable.example.com"}, "spec": {**spec, **changes}}


def tab(name: str = "a", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name},
        "spec": {"cronSpec": "* * * * */5", **spec},
    }  # fmt: skip


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path, runs=True) as server:
        created = await server.ask("POST", CRDS, definition())
        assert created.status == 201, created.text
        await until(server, CRDS + "/crontabs.stable.example.com", is_established)
        yield server


def is_established(answer: Answer) -> bool:
    conditions = answer.json.get("status", {}).get("conditions", [])
    return {"Established", "NamesAccepted"} == {
        entry["type"] for entry in conditions if entry["status"] == "True"
    }


async def until(server: Running, path: str, holds: Callable[[Answer], bool]) -> Answer:
    async with asyncio.timeout(10):
        while True:
            answer = await server.ask("GET", path)
            if holds(answer):
                return answer
            await asyncio.sleep(0.01)


async def test_accepted_names_and_stored_versions_are_in_the_status(server: Running) -> None:
    stored = (await server.ask("GET", f"{CRDS}/crontabs.stable.example.com")).json
    assert stored["status"]["acceptedNames"] == {
        "plural": "crontabs", "singular": "crontab", "kind": "CronTab",
        "listKind": "CronTabList", "shortNames": ["ct"],
    }  # fmt: skip
    assert stored["status"]["storedVersions"] == ["v1"]


async def test_instances_live_like_objects_of_any_kind(server: Running) -> None:
    created = await server.ask("POST", TABS, tab())
    assert created.status == 201, created.text
    assert created.json["spec"] == {"cronSpec": "* * * * */5", "replicas": 1}
    assert created.json["metadata"]["generation"] == 1
    listed = (await server.ask("GET", TABS)).json
    assert (listed["kind"], listed["apiVersion"]) == ("CronTabList", "stable.example.com/v1")
    (item,) = listed["items"]
    assert (item["kind"], item["apiVersion"]) == ("CronTab", "stable.example.com/v1")
    merged = await server.ask(
        "PATCH", f"{TABS}/a", {"spec": {"replicas": 3}},
        Content_Type="application/merge-patch+json",
    )  # fmt: skip
    assert (merged.json["spec"]["replicas"], merged.json["metadata"]["generation"]) == (3, 2)
    status = merged.json | {"status": {"ready": True}, "spec": {"cronSpec": "ignored"}}
    written = await server.ask("PUT", f"{TABS}/a/status", status)
    assert written.status == 200, written.text
    assert (written.json["status"], written.json["spec"]["replicas"]) == ({"ready": True}, 3)
    assert written.json["metadata"]["generation"] == 2
    deleted = await server.ask("DELETE", f"{TABS}/a")
    assert deleted.json["status"] == "Success"
    assert (await server.ask("GET", f"{TABS}/a")).status == 404


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"replicas": 0},
         "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal "
         "to 1"),
        ({"replicas": "x"},
         'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: '
         '"string"'),
        ({"cronSpec": "never"}, "spec.cronSpec in body should match"),
        ({"cronSpec": None}, "spec.cronSpec: Required value"),
        ({"ports": [{"name": "a"}, {"name": "a"}]}, "spec.ports[1]: Duplicate value"),
        ({"ports": {}}, 'spec.ports in body must be of type array: "object"'),
    ],
)  # fmt: skip
async def test_values_are_validated(server: Running, spec: dict[str, Any], says: str) -> None:
    refused = await server.ask("POST", TABS, tab(**spec))
    assert refused.status == 422, refused.text
    assert refused.json["message"].startswith('CronTab.stable.example.com "a" is invalid: ')
    assert says in refused.json["message"]


async def test_body_names_kind_and_version(server: Running) -> None:
    other = await server.ask("POST", TABS, tab() | {"kind": "Other"})
    assert other.status == 422
    assert 'kind: Invalid value: "Other": must be CronTab' in other.json["message"]
    bare = tab()
    del bare["apiVersion"]
    refused = await server.ask("POST", TABS, bare)
    assert refused.status == 400
    assert refused.json["message"] == (
        "the API version in the data () does not match the expected API version "
        "(stable.example.com/v1)"
    )


async def test_unknown_fields_are_pruned_or_refused(server: Running) -> None:
    body = tab(typo=1, free={"any": {"thing": 1}})
    kept = await server.ask("POST", TABS, body)
    assert kept.json["spec"] == {
        "cronSpec": "* * * * */5", "replicas": 1, "free": {"any": {"thing": 1}},
    }  # fmt: skip
    strict = await server.ask("POST", f"{TABS}?fieldValidation=Strict", body)
    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.typo"' in strict.json["message"]


async def test_apply_merges_lists_by_their_keys(server: Running) -> None:
    def applied(port: int, name: str) -> dict[str, Any]:
        return tab("x", ports=[{"name": name, "port": port}])

    for manager, body in (("one", applied(1, "a")), ("two", applied(2, "b"))):
        answer = await server.ask(
            "PATCH", f"{TABS}/x?fieldManager={manager}&force=true",
            body, Content_Type=APPLY,
        )  # fmt: skip
        assert answer.status in (200, 201), answer.text
    assert answer.json["spec"]["ports"] == [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    unknown = await server.ask(
        "PATCH",
        f"{TABS}/x?fieldManager=one",
        tab("x", typo=1),
        Content_Type=APPLY,
    )
    assert "field not declared in schema" in unknown.json["message"]


async def test_strategic_patch_is_not_supported(server: Running) -> None:
    await server.ask("POST", TABS, tab())
    answer = await server.ask(
        "PATCH", f"{TABS}/a", {"spec": {"replicas": 2}},
        Content_Type="application/strategic-merge-patch+json",
    )  # fmt: skip
    assert answer.status == 415


async def test_kind_is_discovered_with_its_columns(server: Running) -> None:
    resources = (await server.ask("GET", "/apis/stable.example.com/v1")).json["resources"]
    assert [entry["name"] for entry in resources] == ["crontabs", "crontabs/status"]
    assert (resources[0]["singularName"], resources[0]["shortNames"]) == ("crontab", ["ct"])
    groups = (await server.ask("GET", "/apis")).json["groups"]
    last = [group["name"] for group in groups[-3:]]
    assert last == ["stable.example.com", "extensions", "metrics.k8s.io"]
    await server.ask("POST", TABS, tab(replicas=2))
    table = (
        await server.ask("GET", TABS, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    ).json
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name", "Spec", "Replicas",
    ]  # fmt: skip
    assert table["rows"][0]["cells"] == ["a", "* * * * */5", 2]


async def test_changed_schema_counts_at_once(server: Running) -> None:
    path = f"{CRDS}/crontabs.stable.example.com"
    stored = (await server.ask("GET", path)).json
    schema = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["image"] = {"type": "string", "default": "i"}
    changed = await server.ask("PUT", path, stored)
    assert changed.status == 200, changed.text
    async with asyncio.timeout(10):
        for number in range(1000):
            created = await server.ask("POST", TABS, tab(f"n{number}"))
            if created.json["spec"].get("image"):
                break
            await asyncio.sleep(0.01)
    assert created.json["spec"]["image"] == "i"


async def test_instances_go_with_their_definition(server: Running) -> None:
    assert (await server.ask("POST", TABS, tab())).status == 201
    held = tab("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    assert (await server.ask("POST", TABS, held)).status == 201
    path = f"{CRDS}/crontabs.stable.example.com"
    assert (await server.ask("DELETE", path)).status == 200
    await until(server, f"{TABS}/a", lambda answer: answer.status == 404)
    assert (await server.ask("GET", path)).json["metadata"]["deletionTimestamp"]
    free = await server.ask(
        "PATCH", f"{TABS}/held", {"metadata": {"finalizers": None}},
        Content_Type="application/merge-patch+json",
    )  # fmt: skip
    assert free.status == 200, free.text
    await until(server, path, lambda answer: answer.status == 404)
    await until(server, TABS, lambda answer: answer.status == 404)
    assert "stable.example.com" not in (await server.ask("GET", "/apis")).text


SCALED: dict[str, Any] = {
    "schema": {"openAPIV3Schema": {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "maximum": 5}, "color": {"type": "string"},
                "a-b": {"type": "boolean"}}},
            "status": {"type": "object", "properties": {
                "size": {"type": "integer"}, "selector": {"type": "string"}}},
        },
    }},
    "subresources": {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size",
            "labelSelectorPath": ".status.selector",
        },
    },
    "selectableFields": [{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.a-b"}],
}  # fmt: skip


@pytest.fixture
async def boxes(server: Running) -> str:
    version = {"name": "v1", "served": True, "storage": True, **SCALED}
    names = {"plural": "boxes", "kind": "Box"}
    made = definition(versions=[version], names=names)
    made["metadata"]["name"] = "boxes.stable.example.com"
    answer = await server.ask("POST", CRDS, made)
    assert answer.status == 201, answer.text
    await until(server, f"{CRDS}/boxes.stable.example.com", is_established)
    return "/apis/stable.example.com/v1/namespaces/default/boxes"


def box(name: str, **spec: Any) -> dict[str, Any]:
    return tab(name) | {"kind": "Box", "spec": spec}


async def test_a_custom_resource_is_scaled(server: Running, boxes: str) -> None:
    assert (await server.ask("POST", boxes, box("a", size=2))).status == 201
    status = {"status": {"size": 1, "selector": "app=a"}}
    merge = "application/merge-patch+json"
    await server.ask("PATCH", f"{boxes}/a/status", status, Content_Type=merge)
    scale = (await server.ask("GET", f"{boxes}/a/scale")).json
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=a"}
    written = await server.ask("PUT", f"{boxes}/a/scale", scale | {"spec": {"replicas": 3}})
    assert written.json["spec"] == {"replicas": 3}
    obj = (await server.ask("GET", f"{boxes}/a")).json
    assert (obj["spec"], obj["metadata"]["generation"]) == ({"size": 3}, 2)
    patch = {"spec": {"replicas": 6}}
    refused = await server.ask("PATCH", f"{boxes}/a/scale", patch, Content_Type=merge)
    assert refused.status == 422
    assert "spec.size: Invalid value: 6" in refused.json["message"]


async def test_a_scale_without_replicas(server: Running, boxes: str) -> None:
    assert (await server.ask("POST", boxes, box("a"))).status == 201
    answer = await server.ask("GET", f"{boxes}/a/scale")
    assert (answer.status, answer.json["message"]) == (
        500, 'Internal error occurred: the spec replicas field ".spec.size" does not exist'
    )  # fmt: skip
    body = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "a"},
            "spec": {"replicas": 4}}  # fmt: skip
    assert (await server.ask("PUT", f"{boxes}/a/scale", body)).status == 200
    assert (await server.ask("GET", f"{boxes}/a")).json["spec"] == {"size": 4}


async def test_fields_of_custom_resources_are_selected(server: Running, boxes: str) -> None:
    for obj in (box("a", color="red"), box("b", color="blue"), box("c", **{"a-b": True})):
        assert (await server.ask("POST", boxes, obj)).status == 201

    async def names(selector: str) -> list[str]:
        answer = await server.ask("GET", f"{boxes}?fieldSelector={selector}")
        assert answer.status == 200, answer.text
        return [item["metadata"]["name"] for item in answer.json["items"]]

    assert await names("spec.color=red") == ["a"]
    assert await names("spec.color!=red") == ["b", "c"]
    assert await names("spec.a-b=true") == ["c"]
    assert await names("spec.color=,metadata.name=c") == ["c"]
    unknown = await server.ask("GET", f"{boxes}?fieldSelector=spec.size%3D1")
    assert (unknown.status, unknown.json["message"]) == (
        400, "field label not supported: spec.size"
    )  # fmt: skip


async def test_watches_are_not_in_yaml(server: Running) -> None:
    refused = await server.ask("GET", f"{TABS}?watch=1", Accept="application/yaml")
    assert refused.status == 406
    assert "accepted: application/json;stream=watch, application/vnd" in refused.text


async def test_watches_end_with_the_definition(server: Running) -> None:
    assert (await server.ask("POST", TABS, tab())).status == 201
    async with server.opened(f"{TABS}?watch=1") as watch:
        assert json.loads(await watch.content.readline())["type"] == "ADDED"
        await server.ask("DELETE", f"{CRDS}/crontabs.stable.example.com")
        async with asyncio.timeout(30):
            rest = (await watch.content.read()).splitlines()
    assert [json.loads(line)["type"] for line in rest] == ["DELETED"]


async def test_watches_end_when_a_version_is_no_longer_served(server: Running) -> None:
    path = f"{CRDS}/crontabs.stable.example.com"
    version = (await server.ask("GET", path)).json["spec"]["versions"][0]
    older = version | {"name": "v1beta1", "storage": False}
    patch = {"spec": {"versions": [version, older]}}
    merge = "application/merge-patch+json"
    assert (await server.ask("PATCH", path, patch, Content_Type=merge)).status == 200
    old_tabs = TABS.replace("/v1/", "/v1beta1/")
    await until(server, old_tabs, lambda answer: answer.status == 200)
    initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with server.opened(f"{old_tabs}?watch=1&{initial}") as watch:
        assert b"BOOKMARK" in await watch.content.readline()
        patch = {"spec": {"versions": [version, older | {"served": False}]}}
        assert (await server.ask("PATCH", path, patch, Content_Type=merge)).status == 200
        async with asyncio.timeout(30):
            assert await watch.content.read() == b""
    assert (await server.ask("GET", old_tabs)).status == 404


async def test_kinds_are_in_openapi_while_they_are_served(server: Running) -> None:
    index = (await server.ask("GET", "/openapi/v3")).json["paths"]
    url = index["apis/stable.example.com/v1"]["serverRelativeURL"]
    document = (await server.ask("GET", url)).json
    schemas = document["components"]["schemas"]
    tab_schema = schemas["com.example.stable.v1.CronTab"]
    assert tab_schema["properties"]["spec"] == SCHEMA["properties"]["spec"]
    assert tab_schema["properties"].keys() == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert tab_schema["x-kubernetes-group-version-kind"] == [
        {"group": "stable.example.com", "kind": "CronTab", "version": "v1"}
    ]
    listed = schemas["com.example.stable.v1.CronTabList"]["properties"]["items"]["items"]
    assert listed == {"allOf": [{"$ref": "#/components/schemas/com.example.stable.v1.CronTab"}]}
    path = "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"
    assert document["paths"][path].keys() == {"get", "put", "patch", "delete"}
    assert f"{path}/status" in document["paths"]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references <= schemas.keys()
    await server.ask("DELETE", f"{CRDS}/crontabs.stable.example.com")
    await until(server, "/openapi/v3", lambda answer: "stable" not in answer.text)
    assert (await server.ask("GET", url)).status == 404


async def test_document_changes_its_hash_with_the_definition(server: Running) -> None:
    def hash_in(answer: Answer) -> str:
        path = "apis/stable.example.com/v1"
        return str(answer.json["paths"][path]["serverRelativeURL"]).partition("?hash=")[2]

    before = hash_in(await server.ask("GET", "/openapi/v3"))
    assert hash_in(await server.ask("GET", "/openapi/v3")) == before
    path = f"{CRDS}/crontabs.stable.example.com"
    patch = [{
        "op": "add", "value": {"type": "string"},
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/extra",
    }]  # fmt: skip
    changed = await server.ask("PATCH", path, patch, Content_Type="application/json-patch+json")
    assert changed.status == 200, changed.text
    index = await until(server, "/openapi/v3", lambda answer: hash_in(answer) != before)
    document = await server.ask("GET", f"/openapi/v3/apis/stable.example.com/v1?hash={before}")
    assert document.status == 301
    assert document.headers["Location"].endswith(hash_in(index))


async def test_definitions_are_served_again_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path, runs=True) as first:
        await first.ask("POST", CRDS, definition())
        await until(first, CRDS + "/crontabs.stable.example.com", is_established)
        assert (await first.ask("POST", TABS, tab())).status == 201
    async with serving(tmp_path, runs=True) as second:
        assert (await second.ask("GET", f"{TABS}/a")).json["spec"]["replicas"] == 1


async def test_second_definition_of_the_same_kind_is_not_established(server: Running) -> None:
    other = definition(names={"plural": "others", "kind": "CronTab"})
    other["metadata"]["name"] = "others.stable.example.com"
    assert (await server.ask("POST", CRDS, other)).status == 201

    def conditions(answer: Answer) -> dict[str, tuple[str, str]]:
        entries = answer.json.get("status", {}).get("conditions", [])
        return {entry["type"]: (entry["status"], entry["reason"]) for entry in entries}

    answer = await until(server, f"{CRDS}/others.stable.example.com", lambda a: bool(conditions(a)))
    assert conditions(answer) == {
        "NamesAccepted": ("False", "ListKindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    path = "/apis/stable.example.com/v1/namespaces/default/others"
    assert (await server.ask("GET", path)).status == 404


async def test_definition_of_an_own_resource_is_not_established(server: Running) -> None:
    approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
    own = definition(
        group="node.k8s.io", scope="Cluster",
        names={"plural": "runtimeclasses", "kind": "RuntimeClass"},
    )  # fmt: skip
    own["metadata"] = {"name": "runtimeclasses.node.k8s.io"}
    refused = await server.ask("POST", CRDS, own)
    assert refused.status == 422
    assert 'must have approval annotation "api-approved.kubernetes.io"' in refused.json["message"]
    own["metadata"]["annotations"] = approved
    assert (await server.ask("POST", CRDS, own)).status == 201
    path = f"{CRDS}/runtimeclasses.node.k8s.io"
    answer = await until(server, path, lambda a: "conditions" in a.json.get("status", {}))
    assert {entry["status"] for entry in answer.json["status"]["conditions"]} == {"False"}
    accepted = answer.json["status"]["conditions"][0]
    assert (accepted["type"], accepted["reason"], accepted["message"]) == (
        "NamesAccepted", "PluralConflict", '"runtimeclasses" is already in use'
    )  # fmt: skip
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    made = await server.ask("POST", classes, {"metadata": {"name": "r"}, "handler": "h"})
    assert made.status == 201, made.text
    assert (await server.ask("DELETE", path)).status == 200
    assert (await server.ask("GET", f"{classes}/r")).status == 200


async def test_schema_of_the_greatest_depth_is_served(server: Running) -> None:
    def nested(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object"}
        for _ in range(levels):
            schema = {"type": "object", "properties": {"a": schema}}
        version = {
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }  # fmt: skip
        names = {"plural": "deeps", "kind": "Deep"}
        changed = definition(versions=[version], names=names)
        return {**changed, "metadata": {"name": "deeps.stable.example.com"}}

    # Bodies nest 100 levels at most.
    assert (await server.ask("POST", CRDS, nested(48))).status == 400
    assert (await server.ask("POST", CRDS, nested(46))).status == 201
    await until(server, f"{CRDS}/deeps.stable.example.com", is_established)
    path = "/apis/stable.example.com/v1/namespaces/default/deeps"
    body = tab("d") | {"kind": "Deep"}
    assert (await server.ask("POST", path, body)).status == 201


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"group": "nodots"}, "should be a domain with at least one dot"),
        ({"scope": "Galaxy"}, 'spec.scope: Unsupported value: "Galaxy"'),
        ({"versions": []}, "must have exactly one version marked as storage version"),
        ({"conversion": {"strategy": "Webhook"}}, "webhookClientConfig: Required value"),
    ],
)
async def test_definitions_are_validated(
    server: Running, changes: dict[str, Any], says: str
) -> None:
    refused = await server.ask("POST", CRDS, definition(**changes))
    assert refused.status == 422, refused.text
    assert says in refused.json["message"]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "string"}, "must be object at the root"),
        ({"type": "object", "properties": {"a": {}}}, "must not be empty for specified object"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "items: Required value"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
         "must be a valid regular expression"),
        ({"type": "object", "x-kubernetes-validations": [{"rule": "1"}]},
         "cel expression must evaluate to a bool"),
        ({"type": "object", "properties": {"a": {"type": "object", "$ref": "x"}}},
         "$ref is not supported"),
    ],
)  # fmt: skip
async def test_schemas_are_validated(server: Running, schema: dict[str, Any], says: str) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    refused = await server.ask("POST", CRDS, definition(versions=[version]))
    assert refused.status == 422, refused.text
    assert says in refused.json["message"]


async def test_kinds_are_in_the_swagger_document_while_they_are_served(server: Running) -> None:
    before = await server.ask("GET", "/openapi/v2")
    definitions = before.json["definitions"]
    tab_schema = definitions["com.example.stable.v1.CronTab"]
    assert tab_schema["properties"].keys() == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert tab_schema["properties"]["metadata"]["$ref"].startswith("#/definitions/")
    free = tab_schema["properties"]["spec"]["properties"]["free"]
    assert free == {"x-kubernetes-preserve-unknown-fields": True}
    items = definitions["com.example.stable.v1.CronTabList"]["properties"]["items"]["items"]
    assert items == {"$ref": "#/definitions/com.example.stable.v1.CronTab"}
    assert (
        "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"
        in (before.json["paths"])
    )
    references = set(re.findall(r'"#/definitions/([^"]+)"', before.text))
    assert references <= definitions.keys()
    same = await server.ask("GET", "/openapi/v2", If_None_Match=before.headers["Etag"])
    assert same.status == 304
    await server.ask("DELETE", f"{CRDS}/crontabs.stable.example.com")
    after = await until(server, "/openapi/v2", lambda answer: "CronTab" not in answer.text)
    assert after.headers["Etag"] != before.headers["Etag"]


async def test_a_kind_without_schema_has_an_open_definition(server: Running) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "opens", "kind": "Open"}
    body = definition(names=names, versions=[version])
    body["metadata"]["name"] = "opens.stable.example.com"
    await server.ask("POST", CRDS, body)
    found = await until(server, "/openapi/v2", lambda answer: "v1.Open" in answer.text)
    schema = found.json["definitions"]["com.example.stable.v1.Open"]
    del schema["x-kubernetes-group-version-kind"]
    assert schema == {"type": "object"}


async def test_defaults_that_grow_without_bound_are_refused(server: Running) -> None:
    """On the way in, and on the way out where the schema has changed since."""
    fields: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": fields}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    body = definition(names={"plural": "lists", "kind": "List"}, versions=[version])
    body["metadata"]["name"] = "lists.stable.example.com"
    assert (await server.ask("POST", CRDS, body)).status == 201
    path = f"{CRDS}/lists.stable.example.com"
    await until(server, path, is_established)
    lists = TABS.replace("crontabs", "lists")
    head = {"apiVersion": "stable.example.com/v1", "kind": "List"}
    created = await server.ask("POST", lists, {**head, "metadata": {"name": "a"}, "l": [{}] * 5000})
    assert created.status == 201, created.text
    fields["properties"]["a"]["default"] = "x" * 200_000
    change = {"spec": {"versions": [version]}}
    assert (
        await server.ask("PATCH", path, change, Content_Type="application/merge-patch+json")
    ).status == 200
    read = await until(server, f"{lists}/a", lambda answer: answer.status != 200)
    assert (read.status, read.json["reason"]) == (413, "RequestEntityTooLarge")
    refused = await server.ask("POST", lists, {**head, "metadata": {"name": "b"}, "l": [{}] * 5000})
    assert refused.status == 413
    assert "the defaults of the custom resource's schema add more than" in refused.json["message"]
    async with server.opened(f"{lists}?watch=true&timeoutSeconds=1") as answer:
        assert b"RequestEntityTooLarge" in await answer.read()
    assert (await server.ask("GET", lists)).status == 413
