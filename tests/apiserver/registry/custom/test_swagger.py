"""Schemas of custom resources in OpenAPI v2."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.custom.swagger import schema_v2

COMMON = {"kind": {"type": "string"}}
STRING = {"type": "string"}
OPEN = {"x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "object", "properties": {"a": {**STRING, "maxLength": 3}}, "required": ["a"]},
         {"type": "object", "properties": {"a": {**STRING, "maxLength": 3}}, "required": ["a"]}),
        ({**STRING, "oneOf": [{}], "anyOf": [{}], "allOf": [{}], "not": {}}, STRING),
        ({"type": "object", "nullable": True, "properties": {"a": STRING}}, {}),
        ({"type": "object", **OPEN, "properties": {"a": STRING}}, OPEN),
        ({"type": "array", **OPEN, "items": STRING}, OPEN),
        ({"type": "array", "items": STRING}, {"type": "array", "items": STRING}),
        ({"type": "object", "properties": {"a": {**STRING, "nullable": True}, "b": STRING},
          "required": ["a", "b"]},
         {"type": "object", "properties": {"a": {}, "b": STRING}, "required": ["b"]}),
        ({"type": "object", "properties": {"a": {**STRING, "nullable": True}}, "required": ["a"]},
         {"type": "object", "properties": {"a": {}}}),
        ({"type": "object", "additionalProperties": {**STRING, "nullable": True},
          "required": ["a"]}, {"type": "object", "additionalProperties": {}}),
        ({"type": "object", "additionalProperties": True},
         {"type": "object", "additionalProperties": True}),
        ({"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"a": STRING}},
         {"type": "object", "x-kubernetes-embedded-resource": True,
          "properties": {"a": STRING, **COMMON}, "required": ["kind", "apiVersion"]}),
        ({"type": "object", "x-kubernetes-embedded-resource": True, **OPEN},
         {"x-kubernetes-embedded-resource": True, **OPEN}),
        ({"x-kubernetes-int-or-string": True}, {"x-kubernetes-int-or-string": True}),
    ],
)  # fmt: skip
def test_what_swagger_cannot_say_is_left_out(
    schema: dict[str, Any], written: dict[str, Any]
) -> None:
    assert schema_v2(schema, COMMON) == written
