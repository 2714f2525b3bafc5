"""Schemas of custom resources in a body: objects beside other forms of the same field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moorage.apiserver.registry.schema import load_schema
from moorage.apiserver.registry.schema.decode import JsonDecoder
from moorage.apiserver.registry.schema.errors import DecodeError

_DEFINITION = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"


def _schema_of(**fields: Any) -> bytes:
    schema = {"openAPIV3Schema": {"type": "object", **fields}}
    return json.dumps({"spec": {"versions": [{"schema": schema}]}}).encode()


@pytest.mark.parametrize(
    "fields",
    [
        {"items": {"type": "string"}},
        {"items": [{"type": "string"}, {"type": "object"}]},
        {"additionalProperties": False},
        {"additionalProperties": {"type": "string"}},
        {"additionalItems": True},
        {"dependencies": {"a": ["b"], "b": {"type": "string"}}},
    ],
)
def test_schemas_beside_other_forms(fields: dict[str, Any]) -> None:
    obj, found = JsonDecoder(load_schema()).decode(_DEFINITION, _schema_of(**fields))
    assert obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == {"type": "object", **fields}
    assert list(found) == []


@pytest.mark.parametrize(
    ("fields", "at", "shown"),
    [
        ({"items": "x"}, "items", "string"),
        ({"items": ["x"]}, "items", "array"),
        ({"items": True}, "items", "bool"),
        ({"items": {"type": 5}}, "items.type", "number"),
        ({"items": {"items": {"properties": "x"}}}, "items.items.properties", "string"),
        ({"additionalProperties": "x"}, "additionalProperties", "string"),
        ({"additionalProperties": [{}]}, "additionalProperties", "array"),
        ({"additionalProperties": {"items": [1]}}, "additionalProperties.items", "array"),
        ({"dependencies": {"a": [1]}}, "dependencies", "array"),
        ({"dependencies": {"a": True}}, "dependencies", "bool"),
    ],
)
def test_what_is_neither_a_schema_nor_its_other_form(
    fields: dict[str, Any], at: str, shown: str
) -> None:
    with pytest.raises(DecodeError) as failed:
        JsonDecoder(load_schema()).decode(_DEFINITION, _schema_of(**fields))
    assert str(failed.value).startswith(
        f"json: cannot unmarshal {shown} into Go struct field "
        f"JSONSchemaProps.spec.versions.schema.openAPIV3Schema.{at} of type "
    )


def test_unknown_fields_of_inner_schemas_are_found() -> None:
    body = _schema_of(items={"tipe": 1, "type": "string"})
    obj, found = JsonDecoder(load_schema()).decode(_DEFINITION, body)
    schema = obj["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["items"] == {"type": "string"}
    assert list(found) == ['unknown field "spec.versions[0].schema.openAPIV3Schema.items.tipe"']
