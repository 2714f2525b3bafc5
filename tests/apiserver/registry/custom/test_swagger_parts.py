"""Parts of other servers' v2 documents: what is taken of them, and under which names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from moorage.apiserver.registry.custom.swagger_parts import add_parts, part_of

PLACE = "/apis/wardle.example.com/v1alpha1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def reference(name: str, kind: str = "definitions") -> dict[str, str]:
    return {"$ref": f"#/{kind}/{name}"}


def document(**changes: Any) -> dict[str, Any]:
    answer = {"200": {"description": "OK", "schema": reference("wardle.Flunder")}}
    return {
        "swagger": "2.0",
        "info": {"title": "Wardle", "version": "1"},
        "paths": {
            f"{PLACE}/flunders": {
                "get": {"operationId": "listFlunder", "responses": answer},
                "parameters": [reference("pretty", "parameters")],
            },
            "/apis/wardle.example.com/": {"get": {"responses": {}}},
            "/apis/wardle.example.com/v1/flunders": {"get": {"responses": {}}},
            "/apis/apps/v1/deployments": {"get": {"responses": {}}},
        },
        "parameters": {"pretty": {"name": "pretty", "in": "query", "type": "string"}},
        "definitions": {
            "wardle.Flunder": {
                "type": "object",
                "properties": {"metadata": reference(META), "next": reference("wardle.Flunder")},
            },
            META: {"type": "object", "properties": {"name": {"type": "string"}}},
            "unused": {"type": "object"},
        },
        **changes,
    }


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def joined(own: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"paths": {}, "definitions": {}}
    add_parts(encoded(own), found, [part_of(encoded(other), PLACE) for other in others])
    return found


def test_the_paths_of_the_group_and_version_and_what_they_lead_to_are_taken() -> None:
    part = part_of(encoded(document()), PLACE)
    assert sorted(part.paths) == ["/apis/wardle.example.com/", f"{PLACE}/flunders"]
    assert sorted(part.definitions) == [META, "wardle.Flunder"]
    assert part.paths[f"{PLACE}/flunders"]["parameters"] == [
        {"name": "pretty", "in": "query", "type": "string"}
    ]


def test_equal_definitions_are_shared() -> None:
    kinds = {"x-kubernetes-group-version-kind": [{"group": "", "kind": "ObjectMeta"}]}
    own = {"paths": {}, "definitions": {META: {**document()["definitions"][META], **kinds}}}
    assert list(joined(own, document())["definitions"]) == ["wardle.Flunder"]


def test_different_definitions_get_names_of_their_own() -> None:
    own = {"paths": {}, "definitions": {META: {"type": "object"}, f"{META}_v2": {"type": "string"}}}
    other = document()
    other["paths"][f"{PLACE}/fischers"] = other["paths"].pop(f"{PLACE}/flunders")
    other["definitions"]["wardle.Flunder"] = {"type": "object"}
    found = joined(own, document(), other)
    flunder = found["definitions"]["wardle.Flunder"]
    assert flunder["properties"] == {
        "metadata": reference(f"{META}_v3"), "next": reference("wardle.Flunder")
    }  # fmt: skip
    assert found["definitions"][f"{META}_v3"] == document()["definitions"][META]
    assert found["definitions"]["wardle.Flunder_v2"] == {"type": "object"}
    responses = found["paths"][f"{PLACE}/fischers"]["get"]["responses"]
    assert responses["200"]["schema"] == reference("wardle.Flunder_v2")


def test_paths_that_are_there_stay() -> None:
    own: dict[str, Any] = {"paths": {f"{PLACE}/flunders": {}}, "definitions": {}}
    found = joined(own, document(), document())
    assert list(found["paths"]) == ["/apis/wardle.example.com/"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"paths": 1}',
        encoded({"paths": {f"{PLACE}/a": {"get": {"unheard": 1}}}}),
        encoded({"paths": {f"{PLACE}/a": 1}}),
        encoded({"paths": {f"{PLACE}/a": {"get": {"x-a": [[]] * 200_000}}}}),
        b'{"paths": {"' + PLACE.encode() + b'/a": ' + b"[" * 5000 + b"]" * 5000 + b"}}",
    ],
)
def test_what_is_no_document_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="OpenAPI document"):
        part_of(text, PLACE)
