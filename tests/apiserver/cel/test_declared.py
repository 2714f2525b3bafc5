"""Bounds that schemas declare: most elements and least bytes, for each kind of schema."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.cel.checked import declare

REQUEST = 3 * 1024 * 1024
TEXT: dict[str, Any] = {"type": "string"}
FORMATTED = {name: {"type": "string", "format": name} for name in ("date", "date-time", "duration")}


def an_object(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


@pytest.mark.parametrize(
    ("schema", "most", "least"),
    [
        ({"type": "boolean"}, 0, 4),
        ({"type": "integer"}, 0, 1),
        ({"type": "number"}, 0, 1),
        (TEXT, REQUEST - 2, 2),
        ({**TEXT, "maxLength": 10}, 40, 2),
        ({**TEXT, "maxLength": -1}, 0, 2),
        ({**TEXT, "format": "byte"}, REQUEST - 2, 2),
        ({**TEXT, "format": "byte", "maxLength": 10}, 10, 2),
        ({**TEXT, "format": "byte", "maxLength": -1}, 0, 2),
        (FORMATTED["date"], 12, 12),
        (FORMATTED["date-time"], 32, 21),
        (FORMATTED["duration"], 32, 3),
        ({**FORMATTED["date"], "maxLength": 1}, 12, 12),
        ({**TEXT, "enum": ["a", "bcd", "é"]}, 3, 2),
        ({**TEXT, "enum": ["é", None]}, 2, 2),
        ({**TEXT, "enum": [], "maxLength": 2}, 8, 2),
        ({**TEXT, "enum": ["abc"], "maxLength": 10}, 40, 2),
        ({**TEXT, "enum": [None]}, 0, 2),
        ({"x-kubernetes-int-or-string": True}, REQUEST - 2, 1),
        ({"x-kubernetes-int-or-string": True, "maxLength": 5}, 20, 1),
        ({"type": "array", "items": TEXT}, (REQUEST - 2) // 3, 2),
        ({"type": "array", "items": {"type": "boolean"}}, (REQUEST - 2) // 5, 2),
        ({"type": "array", "items": TEXT, "maxItems": 7}, 7, 2),
        ({"type": "array", "items": TEXT, "maxItems": -7}, 0, 2),
        ({"type": "array", "items": TEXT, "maxItems": 0}, 0, 2),
        ({"type": "object", "additionalProperties": TEXT}, (REQUEST - 2) // 8, 2),
        ({"type": "object", "additionalProperties": TEXT, "maxProperties": 5}, 5, 2),
        ({"type": "object", "additionalProperties": TEXT, "maxProperties": -5}, 0, 2),
        (an_object(a=TEXT), 0, 2),
        (an_object(["abc"], abc=TEXT), 0, 2 + 3 + 2 + 4),
        (an_object(["a", "b", "c"], a={"type": "boolean"}, b={**TEXT, "default": "x"}), 0, 11),
        ({"type": "array", "items": an_object(["abc"], abc=TEXT)}, (REQUEST - 2) // 12, 2),
    ],
)
def test_a_schema_bounds_its_values(schema: dict[str, Any], most: int, least: int) -> None:
    declared = declare(schema)
    assert declared is not None
    assert (declared.most_elements, declared.least_bytes) == (most, least)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "unknown"},
        {"type": "array"},
        {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True}},
        {"type": "object", "additionalProperties": {}},
    ],
)
def test_values_that_expressions_do_not_see_have_no_bounds(schema: dict[str, Any]) -> None:
    assert declare(schema) is None


TREE = an_object(
    list={"type": "array", "items": {**TEXT, "maxLength": 1}},
    map={"type": "object", "additionalProperties": {**TEXT, "maxLength": 2}},
    inner=an_object(text={**TEXT, "maxLength": 3}),
    namespace={**TEXT, "maxLength": 4},
    open={"x-kubernetes-preserve-unknown-fields": True},
    pod={**an_object(text={**TEXT, "maxLength": 5}), "x-kubernetes-embedded-resource": True},
)


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ((), 0),
        (("list", "@items"), 4),
        (("map", "@values"), 8),
        (("map", "@keys"), 0),
        (("list", "@keys"), None),
        (("inner", "text"), 12),
        (("inner", "@items"), None),
        (("inner", "absent"), None),
        (("absent", "text"), None),
        (("open",), None),
        (("namespace",), 16),
        (("__namespace__",), 16),
        (("pod", "text"), 20),
        (("pod", "metadata", "name"), REQUEST - 2),
        (("metadata",), None),
    ],
)
def test_bounds_are_found_by_their_path(path: tuple[str, ...], most: int | None) -> None:
    root = declare(TREE)
    assert root is not None
    found = root.at(path)
    assert (None if found is None else found.most_elements) == most


def test_a_resource_has_the_bounds_of_its_names() -> None:
    root = declare(an_object(), is_resource=True)
    assert root is not None
    for path in (("kind",), ("apiVersion",), ("metadata", "name"), ("metadata", "generateName")):
        found = root.at(path)
        assert found is not None
        assert found.most_elements == REQUEST - 2
