"""The form of structural schemas."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.custom.structure import compile_structure, has_unknown_fields
from moorage.apiserver.registry.validation.structural_schema import (
    Schema,
    default_errors,
    structural_errors,
    structure_problem,
)

INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
OPEN = {"x-kubernetes-preserve-unknown-fields": True}
EMBEDDED = {"x-kubernetes-embedded-resource": True}
EITHER = {"x-kubernetes-int-or-string": True}


def root(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def says(schema: Schema) -> list[str]:
    return [str(error) for error in structural_errors(schema, "s")]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"id": "x"}, "OpenAPIV3Schema 'id' is not supported"),
        ({"$schema": "x"}, "OpenAPIV3Schema 'schema' is not supported"),
        ({"$ref": "x"}, "OpenAPIV3Schema '$ref' is not supported"),
        ({"additionalItems": False}, "OpenAPIV3Schema 'additionalItems' is not supported"),
        ({"properties": {"a": {"items": [{}]}}},
         "OpenAPIV3Schema 'items' must be a schema, but is an array"),
        ({"anyOf": [{"not": {"x-kubernetes-preserve-unknown-fields": False}}]},
         "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"),
        (root(a={"type": "string"}), ""),
    ],
)  # fmt: skip
def test_schemas_without_structure(schema: Schema, expected: str) -> None:
    assert structure_problem(schema) == expected


@pytest.mark.parametrize(
    ("schema", "errors"),
    [
        (root(a={"type": "string"}, b=OPEN, c=EITHER), []),
        ({}, ["s.type: Required value: must not be empty at the root"]),
        ({"type": "array"},
         ["s.items: Required value: must be specified",
          's.type: Invalid value: "array": must be object at the root']),
        (root(a={}, b={"type": "array", "items": {}}),
         ["s.properties[a].type: Required value: must not be empty for specified object fields",
          "s.properties[b].items.type: Required value: must not be empty for specified array "
          "items"]),
        ({"type": "object", "additionalProperties": {}},
         ["s.additionalProperties.type: Required value: must not be empty for specified object "
          "fields",
          "s.additionalProperties: Forbidden: must not be used at the root"]),
        (root(a=EITHER | OPEN | EMBEDDED | {"type": "object"}),
         ["s.properties[a].x-kubernetes-embedded-resource: Invalid value: true: must be false if "
          "x-kubernetes-int-or-string is true",
          "s.properties[a].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be "
          "false if x-kubernetes-int-or-string is true"]),
        (root(a=EMBEDDED | {"additionalProperties": True}, b=EMBEDDED | OPEN | {"type": "string"}),
         ["s.properties[a].additionalProperties: Forbidden: must not be used if "
          "x-kubernetes-embedded-resource is set",
          "s.properties[a].properties: Required value: must not be empty if "
          "x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
          "s.properties[a].type: Required value: must be object if "
          "x-kubernetes-embedded-resource is true",
          's.properties[b].type: Invalid value: "string": must be object if '
          "x-kubernetes-embedded-resource is true"]),
        (root(kind={"type": "object"}, apiVersion=OPEN, metadata={"type": "string"}),
         ['s.properties[apiVersion].type: Invalid value: "": must be string',
          's.properties[kind].type: Invalid value: "object": must be string',
          's.properties[metadata].type: Invalid value: "string": must be object']),
        (root(metadata=root(name={"type": "string"}, x={"type": "string"})),
         ["s.properties[metadata]: Forbidden: must not specify anything other than name and "
          "generateName, but metadata is implicitly specified"]),
        (root(metadata=root(name={"type": "string"}, generateName={"type": "string"})), []),
        (root(a=EITHER | {"anyOf": INT_OR_STRING}), []),
        (root(a=EITHER | {"allOf": [{"anyOf": INT_OR_STRING}]}), []),
        (root(a=EITHER | {"allOf": [{}, {"anyOf": INT_OR_STRING}]}),
         ["s.properties[a].allOf[1].anyOf[0].type: Forbidden: must be empty to be structural",
          "s.properties[a].allOf[1].anyOf[1].type: Forbidden: must be empty to be structural"]),
        ({"type": "object", "not": {
            "type": "object", "default": {}, "title": "t", "description": "d", "nullable": True,
            "x-kubernetes-preserve-unknown-fields": True, "x-kubernetes-embedded-resource": True,
            "x-kubernetes-int-or-string": True, "x-kubernetes-list-map-keys": ["a"],
            "x-kubernetes-list-type": "set", "x-kubernetes-map-type": "atomic",
            "x-kubernetes-validations": [{"rule": "true"}], "additionalProperties": True}},
         ["s.not.additionalProperties: Forbidden: must be undefined to be structural",
          "s.not.default: Forbidden: must be undefined to be structural",
          "s.not.description: Forbidden: must be empty to be structural",
          "s.not.nullable: Forbidden: must be false to be structural",
          "s.not.title: Forbidden: must be empty to be structural",
          "s.not.type: Forbidden: must be empty to be structural",
          "s.not.x-kubernetes-embedded-resource: Forbidden: must be false to be structural",
          "s.not.x-kubernetes-int-or-string: Forbidden: must be false to be structural",
          "s.not.x-kubernetes-list-map-keys: Forbidden: must be empty to be structural",
          "s.not.x-kubernetes-list-type: Forbidden: must be undefined to be structural",
          "s.not.x-kubernetes-map-type: Forbidden: must be undefined to be structural",
          "s.not.x-kubernetes-preserve-unknown-fields: Forbidden: must be false to be structural",
          "s.not.x-kubernetes-validations: Forbidden: must be empty to be structural"]),
        ({"type": "object", "oneOf": [{"properties": {"metadata": {}}}]},
         ["s.oneOf[0].properties[metadata]: Forbidden: must not be specified in a nested context",
          "s.properties[metadata]: Required value: because it is defined in "
          "s.oneOf[0].properties[metadata]"]),
        (root(a={"type": "array", "items": {"type": "string"}})
         | {"allOf": [{"properties": {"a": {"items": {"minLength": 1, "items": {}}}}}]},
         ["s.properties[a].items.items: Required value: because it is defined in "
          "s.allOf[0].properties[a].items.items"]),
        (root(a={"type": "string"}) | {"allOf": [{"anyOf": [{"properties": {"b": {}}}]}]},
         ["s.properties[b]: Required value: because it is defined in "
          "s.allOf[0].anyOf[0].properties[b]"]),
        (root(a={"type": "string", "pattern": "("}),
         ['s.properties[a].pattern: Invalid value: "(": must be a valid regular expression, but '
          "isn't: error parsing regexp: missing closing ): `(`"]),
    ],
)  # fmt: skip
def test_structure(schema: Schema, errors: list[str]) -> None:
    assert says(schema) == errors


@pytest.mark.parametrize(
    ("value", "schema", "is_unknown"),
    [
        ({"a": 1}, root(), True),
        ({"a": 1}, root() | OPEN, False),
        ({"a": 1}, {"additionalProperties": {"type": "integer"}}, False),
        ({"a": {"b": 1}}, {"additionalProperties": True}, True),
        ({"a": [{"b": 1}]}, root(a={"items": root(b={})}), False),
        ({"a": [{"b": 1}]}, root(a={"items": root()}), True),
        ({"a": [{"b": 1}]}, root(a=OPEN), False),
        ({"a": [{"b": 1}]}, root(a=OPEN | {"items": root()}), False),
        ({"kind": "x"}, root() | EMBEDDED, False),
        (1, root(), False),
    ],
)
def test_unknown_fields(value: Any, schema: Schema, is_unknown: bool) -> None:
    structure = compile_structure(schema)
    assert has_unknown_fields(value, structure, is_resource=False) is is_unknown


def test_defaults_are_pruned() -> None:
    inner = root() | {"default": {"a": 1}}
    schema = root(kind=inner, spec=root(kind=inner), list={"type": "array", "items": inner})
    text = 'Invalid value: {"a":1}: must not have unknown fields'
    assert [str(error) for error in default_errors(compile_structure(schema), "s")] == [
        f"s.properties[spec].properties[kind].default: {text}",
        f"s.properties[list].items.default: {text}",
    ]
