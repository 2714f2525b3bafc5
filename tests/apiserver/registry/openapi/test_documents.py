"""The documents that kubectl validates, explains and patches by."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from moorage.apiserver.registry.kind import Kind, Served
from moorage.apiserver.registry.kinds import ALL_KINDS, STORED_KINDS
from moorage.apiserver.registry.openapi import Documents
from moorage.apiserver.registry.openapi.operations import operations

DOCUMENTS = Documents()


@cache
def v3(path: str) -> dict[str, Any]:
    decoded: dict[str, Any] = msgspec.json.decode(DOCUMENTS.v3[path].text())
    return decoded


def path_of(served: Served) -> str:
    return f"apis/{served.api_version}" if served.group else "api/v1"


PLACES = [(kind, served) for kind in ALL_KINDS for served in kind.served]


@pytest.mark.parametrize(
    ("kind", "served"), PLACES, ids=[f"{served.api_version} {kind.name}" for kind, served in PLACES]
)
def test_every_version_of_every_kind_is_described(kind: Kind, served: Served) -> None:
    document = v3(path_of(served))
    schema = document["components"]["schemas"][served.type]
    assert {"group": served.group, "kind": kind.name, "version": served.version} in schema[
        "x-kubernetes-group-version-kind"
    ]


@pytest.mark.parametrize("path", sorted(DOCUMENTS.v3))
def test_a_document_refers_to_nothing_outside(path: str) -> None:
    document = v3(path)
    known = set(document.get("components", {}).get("schemas", {}))
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in known


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


@pytest.mark.parametrize("kind", [kind for kind in STORED_KINDS if "patch" in kind.verbs],
                         ids=lambda kind: kind.name)  # fmt: skip
def test_kubectl_finds_that_the_server_validates(kind: Kind) -> None:
    for served in kind.served:
        patches = [
            methods["patch"]
            for methods in v3(path_of(served))["paths"].values()
            if "patch" in methods
        ]
        own = [
            patch
            for patch in patches
            if patch["x-kubernetes-group-version-kind"]
            == {"group": served.group, "kind": kind.name, "version": served.version}
        ]
        assert own
        for path in own:
            assert "fieldValidation" in {parameter["name"] for parameter in path["parameters"]}
            assert set(path["requestBody"]["content"]) == {
                "application/apply-patch+yaml", "application/json-patch+json",
                "application/merge-patch+json", "application/strategic-merge-patch+json",
            }  # fmt: skip


def test_a_kinds_operations_have_the_ids_that_generators_use() -> None:
    document = v3("apis/node.k8s.io/v1")
    ids = {
        method["operationId"]
        for methods in document["paths"].values()
        for method in methods.values()
        if isinstance(method, dict)
    }
    assert {
        "readNodeV1RuntimeClass", "listNodeV1RuntimeClass", "createNodeV1RuntimeClass",
        "replaceNodeV1RuntimeClass", "patchNodeV1RuntimeClass", "deleteNodeV1RuntimeClass",
    } <= ids  # fmt: skip


def test_no_two_operations_share_an_id() -> None:
    ids = [operation.id for kind, served in PLACES for operation in operations(kind, served)]
    assert len(ids) == len(set(ids))


def test_paths_have_the_parameters_they_name() -> None:
    for kind, served in PLACES:
        for operation in operations(kind, served):
            placed = {
                parameter.name for parameter in operation.parameters if parameter.place == "path"
            }
            assert placed == {
                name for name in ("name", "namespace") if f"{{{name}}}" in operation.path
            }


def test_the_class_schema_says_how_its_parts_merge() -> None:
    schemas = v3("apis/node.k8s.io/v1")["components"]["schemas"]
    runtime_class = schemas["io.k8s.api.node.v1.RuntimeClass"]
    assert runtime_class["required"] == ["handler"]
    scheduling = schemas["io.k8s.api.node.v1.Scheduling"]["properties"]
    assert scheduling["nodeSelector"]["x-kubernetes-map-type"] == "atomic"
    assert scheduling["tolerations"]["x-kubernetes-list-type"] == "atomic"
    spec = v3("api/v1")["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
    assert spec["containers"]["x-kubernetes-patch-strategy"] == "merge"


def test_reference_with_a_description_is_wrapped() -> None:
    schemas = v3("apis/node.k8s.io/v1")["components"]["schemas"]
    overhead = schemas["io.k8s.api.node.v1.RuntimeClass"]["properties"]["overhead"]
    assert overhead["allOf"] == [{"$ref": "#/components/schemas/io.k8s.api.node.v1.Overhead"}]
    assert overhead["description"]


def test_hashes_distinguish_documents() -> None:
    hashes = [document.hash for document in DOCUMENTS.v3.values()]
    assert len(hashes) == len(set(hashes))


def test_a_quantity_may_be_a_number() -> None:
    """Clients make validators of this: `cpu: 1` is as good as `cpu: "1"`."""
    schemas = v3("api/v1")["components"]["schemas"]
    quantity = schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"]
    assert quantity == {"oneOf": [{"type": "string"}, {"type": "number"}]}
