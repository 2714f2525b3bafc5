"""Pruning and defaulting by the structure of a custom resource."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import TooLargeError
from moorage.apiserver.registry.custom.decoding import set_defaults
from moorage.apiserver.registry.custom.structure import compile_structure, prune


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


LARGE = {"type": "string", "default": "x" * 200_000}


def test_defaults_have_a_budget() -> None:
    """15 KB of body with a default of 200 KB for each item came to 2.9 GiB."""
    structure = compile_structure(_object(l={"type": "array", "items": _object(a=LARGE)}))
    some: dict[str, Any] = {"l": [{} for _ in range(10)]}
    set_defaults(some, structure)
    assert all(len(item["a"]) == 200_000 for item in some["l"])
    with pytest.raises(TooLargeError, match="add more than 3145728 bytes"):
        set_defaults({"l": [{} for _ in range(5000)]}, structure)


def test_small_values_of_defaults_count_for_what_they_take_in_memory() -> None:
    many = {
        "type": "array", "items": {"type": "object"}, "default": [{} for _ in range(1000)],
    }  # fmt: skip
    structure = compile_structure(_object(l={"type": "array", "items": _object(a=many)}))
    with pytest.raises(TooLargeError):
        set_defaults({"l": [{} for _ in range(1000)]}, structure)


def test_the_paths_of_removed_fields_are_bounded() -> None:
    schema = _object(m={"type": "object", "additionalProperties": _object(a=STRING)})
    key = "k" * 1_000_000
    obj = {"m": {key: {f"b{number}": 1 for number in range(100_000)}}}
    paths = prune(obj, compile_structure(schema))
    assert obj == {"m": {key: {}}}
    assert sum(map(len, paths)) == 64 * 1024
    assert paths[0].startswith("m.kkk")
