"""Errors of updates that a stricter schema makes, with and without a change of the value."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.registry.custom.definition import ratcheted
from moorage.apiserver.registry.custom.rules import compile_rules
from moorage.apiserver.registry.custom.structure import compile_structure

SHORT = {"type": "string", "maxLength": 1}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": SHORT,
        "spec": {
            "type": "object", "required": ["must"],
            "properties": {"a": SHORT, "b": {"type": "integer"}, "must": SHORT},
        },
        "map": {"type": "object", "additionalProperties": SHORT},
        "list": {"type": "array", "items": SHORT},
        "keyed": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": SHORT}},
        },
        "either": {"type": "object", "properties": {"x": {"type": "string"}},
                   "anyOf": [{"required": ["y"]}, {"required": ["z"]}]},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    },
}  # fmt: skip


def errors(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    rule = compile_rules(SCHEMA)

    def errors_of(obj: dict[str, Any]) -> Any:
        found: Any = []
        rule(obj, "", found)
        return found

    kept = ratcheted(errors_of(new), new, old, compile_structure(SCHEMA), errors_of)
    return [error.field for error in kept]


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ({"a": "long"}, {"a": "long", "spec": {"must": "m"}}, []),
        ({"a": "long"}, {"a": "longer"}, ["a"]),
        ({}, {"a": "long"}, ["a"]),
        ({"spec": {"a": "long"}}, {"spec": {"a": "long"}}, []),
        ({"spec": {"a": "long", "must": "m"}}, {"spec": {"a": "long", "must": "m", "b": 1}}, []),
        ({"spec": {"b": 1}}, {"spec": {"b": 2}}, ["spec.must"]),
        ({"map": {"x.y": "long", "z": "1"}}, {"map": {"x.y": "long", "z": "2"}}, []),
        ({"map": {"x.y": "long"}}, {"map": {"x": "long", "x.y": "long"}}, ["map.x"]),
        ({"list": ["long"]}, {"list": ["long"]}, []),
        ({"list": ["long"]}, {"list": ["long", "b"]}, ["list[0]"]),
        ({"keyed": [{"k": "1", "v": "long"}]},
         {"keyed": [{"k": "0"}, {"k": "1", "v": "long"}]}, []),
        ({"keyed": [{"k": "1", "v": "long"}]}, {"keyed": [{"k": "2", "v": "long"}]},
         ["keyed[0].v"]),
        ({"either": {"x": "1"}}, {"either": {"x": "1"}, "a": "b"}, []),
        ({"either": {"x": "1"}}, {"either": {"x": "2"}}, ["<nil>", "either.y"]),
        ({"set": ["a", "a"]}, {"set": ["a", "a", "b"]}, []),
        ({"set": ["a"]}, {"set": ["a", "a"]}, ["set[1]"]),
    ],
)  # fmt: skip
def test_only_what_changes_is_an_error(
    old: dict[str, Any], new: dict[str, Any], fields: list[str]
) -> None:
    assert errors(new, old) == fields
