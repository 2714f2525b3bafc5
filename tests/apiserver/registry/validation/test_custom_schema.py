"""The fields of the schema of a custom resource definition."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.validation.custom_schema import schema_errors
from moorage.apiserver.registry.validation.structural_schema import Schema

ATOMIC_ITEM = "must be atomic as item of a list with x-kubernetes-list-type=set"


def says(**properties: Schema) -> list[str]:
    """Return the errors of an object with these properties, each without the path's start."""
    schema = {"type": "object", "properties": properties}
    errors = schema_errors(schema, "s", has_status=False)
    return [str(error).removeprefix("s.properties[a].") for error in errors]


def rule(**fields: str) -> Schema:
    return {
        "type": "object",
        "properties": {"b": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "true", **fields}],
    }


@pytest.mark.parametrize(
    ("schema", "errors"),
    [
        ({"type": "any"},
         ['type: Unsupported value: "any": supported values: "array", "boolean", "integer", '
          '"number", "object", "string"']),
        ({"type": "null"},
         ['type: Unsupported value: "null": supported values: "array", "boolean", "integer", '
          '"number", "object", "string"',
          "type: Forbidden: type cannot be set to null, use nullable as an alternative"]),
        ({"type": "string", "id": "i", "$ref": "r", "additionalItems": True,
          "patternProperties": {"a": {}}, "definitions": {"a": {}}, "dependencies": {"a": ["b"]}},
         ["id: Forbidden: id is not supported",
          "additionalItems: Forbidden: additionalItems is not supported",
          "patternProperties: Forbidden: patternProperties is not supported",
          "definitions: Forbidden: definitions is not supported",
          "dependencies: Forbidden: dependencies is not supported",
          "$ref: Forbidden: $ref is not supported"]),
        ({"type": "string", "$schema": "x"},
         ["s: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"]),
        ({"type": "array", "items": [{}]},
         ["items: Forbidden: items must be a schema object and not an array"]),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True},
         ["uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity "
          "becomes quadratic"]),
        ({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": False},
         ["additionalProperties: Forbidden: additionalProperties and properties are mutual "
          "exclusive"]),
        ({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": True},
         []),
        ({"x-kubernetes-preserve-unknown-fields": False},
         ["x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"]),
        ({"type": "string", "x-kubernetes-map-type": "flat"},
         ['type: Invalid value: "string": must be object if x-kubernetes-map-type is specified',
          'x-kubernetes-map-type: Unsupported value: "flat": supported values: "atomic", '
          '"granular"']),
        ({"x-kubernetes-int-or-string": True, "x-kubernetes-map-type": "atomic"},
         ["type: Required value: must be object if x-kubernetes-map-type is specified"]),
        ({"type": "string", "x-kubernetes-list-type": "bag"},
         ['type: Invalid value: "string": must be array if x-kubernetes-list-type is specified',
          'x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", '
          '"map"']),
        ({"type": "array", "x-kubernetes-list-type": "set", "items": {
            "type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}},
         [f'items.x-kubernetes-list-type: Invalid value: "set": {ATOMIC_ITEM}']),
        ({"type": "array", "x-kubernetes-list-type": "set",
          "items": {"type": "object", "nullable": True}},
         [f"items.x-kubernetes-map-type: Invalid value: null: {ATOMIC_ITEM}",
          "items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set"]),
        ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-map-keys": ["b"]},
         ["x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is "
          "non-empty"]),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["b"],
          "x-kubernetes-list-type": "set"},
         ['x-kubernetes-list-type: Invalid value: "set": must be map if '
          "x-kubernetes-list-map-keys is non-empty"]),
        ({"type": "array", "x-kubernetes-list-type": "map"},
         ["items: Required value: must be specified",
          "x-kubernetes-list-map-keys: Required value: must not be empty if "
          "x-kubernetes-list-type is map",
          "items: Required value: must have a schema if x-kubernetes-list-type is map"]),
        ({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"],
          "items": {"type": "string"}},
         ['items.type: Invalid value: "string": must be object if parent array\'s '
          "x-kubernetes-list-type is map"]),
        ({"type": "array", "x-kubernetes-list-type": "map",
          "x-kubernetes-list-map-keys": ["b", "b", "c"],
          "items": {"type": "object", "properties": {
              "b": {"type": "array", "items": {"type": "string"}, "nullable": True}}}},
         ['items.properties[b].type: Invalid value: "object": must be a scalar type if parent '
          "array's x-kubernetes-list-type is map",
          'items.properties[b].type: Invalid value: "object": must be a scalar type if parent '
          "array's x-kubernetes-list-type is map",
          'x-kubernetes-list-map-keys: Invalid value: ["b","b","c"]: must not contain duplicate '
          "entries",
          'x-kubernetes-list-map-keys: Invalid value: ["b","b","c"]: entries must all be names of '
          "item properties",
          *2 * ["items.properties[b].default: Required value: this property is in "
                "x-kubernetes-list-map-keys, so it must have a default or be a required property",
                "items.properties[b].nullable: Forbidden: this property is in "
                "x-kubernetes-list-map-keys, so it cannot be nullable"]]),
        (rule(rule=" "),
         ["x-kubernetes-validations[0].rule: Required value: rule is not specified"]),
        (rule(message=" "),
         ['x-kubernetes-validations[0].message: Invalid value: " ": must be non-empty if '
          "specified"]),
        (rule(message="a\nb"),
         ['x-kubernetes-validations[0].message: Invalid value: "a\\nb": must not contain line '
          "breaks"]),
        (rule(rule="a\n&& b"),
         ["x-kubernetes-validations[0].message: Required value: message must be specified if rule "
          "contains line breaks"]),
        (rule(messageExpression=" ", reason="No", fieldPath=" "),
         ["x-kubernetes-validations[0].messageExpression: Required value: messageExpression must "
          "be non-empty if specified",
          'x-kubernetes-validations[0].reason: Unsupported value: "No": supported values: '
          '"FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", '
          '"FieldValueRequired"',
          'x-kubernetes-validations[0].fieldPath: Invalid value: " ": must be non-empty if '
          "specified",
          'x-kubernetes-validations[0].fieldPath: Invalid value: " ": must be a valid path']),
        (rule(fieldPath=".b\n"),
         ['x-kubernetes-validations[0].fieldPath: Invalid value: ".b\\n": must not contain line '
          "breaks",
          'x-kubernetes-validations[0].fieldPath: Invalid value: ".b\\n": must be a valid path']),
        (rule(fieldPath=".b", reason="FieldValueInvalid"), []),
    ],
)  # fmt: skip
def test_schema(schema: Schema, errors: list[str]) -> None:
    assert says(a=schema) == errors


def test_the_meta_of_a_resource_has_no_defaults() -> None:
    assert says(kind={"type": "string", "default": "x"}) == [
        "s.properties[kind].default: Forbidden: must not be set in top-level kind"
    ]


def test_below_the_meta_of_an_embedded_resource() -> None:
    values = {"type": "object", "additionalProperties": {"type": "string", "default": "x"}}
    inner = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"b": values}}
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "properties": {"metadata": {"type": "object", "properties": {"b": inner, "c": values}}},
    }
    reason = "must not be set inside additionalProperties applying to object metadata"
    assert says(a=embedded) == [
        "properties[metadata].properties[b].x-kubernetes-embedded-resource: Forbidden: must not "
        "be used inside of resource meta",
        "properties[metadata].properties[b].properties[b].additionalProperties.default: "
        f"Forbidden: {reason}",
        f"properties[metadata].properties[c].additionalProperties.default: Forbidden: {reason}",
    ]
