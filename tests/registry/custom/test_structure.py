"""Pruning and defaulting by the structure of a custom resource."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.registry.custom.defaulting import set_defaults
from moorage.registry.custom.pruning import prune
from moorage.registry.custom.structure import compile_structure


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "obj", "kept", "pruned"),
    [
        (_object(a=STRING), {"a": "1", "b": 2}, {"a": "1"}, ["b"]),
        (_object(spec=_object(a=STRING)), {"metadata": {"x": 1}, "spec": {"b": 1}},
         {"metadata": {"x": 1}, "spec": {}}, ["spec.b"]),
        (_object(l={"type": "array", "items": _object(a=STRING)}),
         {"l": [{"a": "1", "b": 1}, {"c": 2}]}, {"l": [{"a": "1"}, {}]}, ["l[0].b", "l[1].c"]),
        (_object(m={"type": "object", "additionalProperties": _object(a=STRING)}),
         {"m": {"k": {"b": 1}}}, {"m": {"k": {}}}, ["m.k.b"]),
        (_object(m={"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
         {"m": {"k": {"b": 1}}}, {"m": {"k": {"b": 1}}}, []),
        (_object(m={"type": "object", "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"k": _object(a=STRING)}}),
         {"m": {"k": {"b": 1}, "z": 1}}, {"m": {"k": {}, "z": 1}}, ["m.k.b"]),
        (_object(p={"type": "object", "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": _object()}}),
         {"p": {"apiVersion": "v1", "kind": "P", "metadata": {"name": "n"}, "x": 1}},
         {"p": {"apiVersion": "v1", "kind": "P", "metadata": {"name": "n"}}}, ["p.x"]),
        (_object(m={"type": "object", "additionalProperties": True}),
         {"m": {"k": {"b": 1}, "n": 1}}, {"m": {"k": {}, "n": 1}}, ["m.k.b"]),
        (_object(l={"type": "array", "x-kubernetes-preserve-unknown-fields": True,
                    "items": _object(a=_object(), b=STRING)}),
         {"l": [{"a": {"c": 1}, "d": 1}]}, {"l": [{"a": {}, "d": 1}]}, ["l[0].a.c"]),
        (_object(), {"apiVersion": "g/v1", "kind": "K", "metadata": {}, "x": 1},
         {"apiVersion": "g/v1", "kind": "K", "metadata": {}}, ["x"]),
        (_object(a=STRING), {"a": {"b": 1}}, {"a": {}}, ["a.b"]),
    ],
)  # fmt: skip
def test_pruning(
    schema: dict[str, Any], obj: dict[str, Any], kept: dict[str, Any], pruned: list[str]
) -> None:
    assert prune(obj, compile_structure(schema)) == pruned
    assert obj == kept


@pytest.mark.parametrize(
    ("schema", "obj", "expected"),
    [
        (_object(a={"type": "integer", "default": 3}), {}, {"a": 3}),
        (_object(a={"type": "integer", "default": 3}), {"a": 0}, {"a": 0}),
        (_object(a={"type": "integer", "default": 3}), {"a": None}, {"a": 3}),
        (_object(a={"type": "integer", "default": 3, "nullable": True}), {"a": None},
         {"a": None}),
        (_object(a=STRING), {"a": None}, {}),
        (_object(a={**STRING, "nullable": True}), {"a": None}, {"a": None}),
        (_object(), {"a": None}, {"a": None}),
        (_object(a={**_object(b={"type": "integer", "default": 1}), "default": {}}), {},
         {"a": {"b": 1}}),
        (_object(a=_object(b={"type": "integer", "default": 1})), {}, {}),
        (_object(a=_object(b={"type": "integer", "default": 1})), {"a": {}}, {"a": {"b": 1}}),
        (_object(l={"type": "array", "items": {"type": "integer", "default": 7}}),
         {"l": [1, None]}, {"l": [1, 7]}),
        (_object(m={"type": "object", "additionalProperties": {"type": "integer", "default": 7}}),
         {"m": {"k": None, "l": 1}}, {"m": {"k": 7, "l": 1}}),
        (_object(m={"type": "object", "additionalProperties": STRING}), {"m": {"k": None}},
         {"m": {}}),
    ],
)  # fmt: skip
def test_defaulting(schema: dict[str, Any], obj: dict[str, Any], expected: dict[str, Any]) -> None:
    set_defaults(obj, compile_structure(schema))
    assert obj == expected


def test_defaults_are_copied() -> None:
    structure = compile_structure(
        _object(
            a={"type": "object", "default": {"b": []}, "x-kubernetes-preserve-unknown-fields": True}
        )
    )
    first: dict[str, Any] = {}
    set_defaults(first, structure)
    first["a"]["b"].append(1)
    second: dict[str, Any] = {}
    set_defaults(second, structure)
    assert second == {"a": {"b": []}}
