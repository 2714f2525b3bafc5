"""Value validation of custom resources: each keyword's error, path and text."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api.errors import FieldError
from moorage.apiserver.registry.custom.formats import PatternError
from moorage.apiserver.registry.custom.rules import compile_rules


def errors(schema: dict[str, Any], value: Any, path: str = "spec.x") -> list[str]:
    field_errors: list[FieldError] = []
    compile_rules(schema)(value, path, field_errors)
    return [str(error) for error in field_errors]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"type": "integer"}, "a",
         ['spec.x: Invalid value: "string": spec.x in body must be of type integer: "string"']),
        ({"type": "integer"}, 1.0, []),
        ({"type": "integer"}, 1.5,
         ['spec.x: Invalid value: "number": spec.x in body must be of type integer: "number"']),
        ({"type": "integer"}, True,
         ['spec.x: Invalid value: "boolean": spec.x in body must be of type integer: "boolean"']),
        ({"type": "number"}, 1, []),
        ({"type": "string"}, None,
         ['spec.x: Invalid value: "null": spec.x in body must be of type string: "null"']),
        ({"type": "string", "nullable": True}, None, []),
        ({"type": "array"}, {},
         ['spec.x: Invalid value: "object": spec.x in body must be of type array: "object"']),
        ({"x-kubernetes-int-or-string": True}, "10%", []),
        ({"x-kubernetes-int-or-string": True}, 3, []),
        ({"x-kubernetes-int-or-string": True}, [],
         ['spec.x: Invalid value: "array": spec.x in body must be of type integer,string: '
          '"array"']),
        ({"type": "integer", "format": "int32"}, 2**31,
         ["spec.x: Invalid value: 2147483648: spec.x in body must be of type int32: 2147483648"]),
        ({"type": "string", "format": "date-time"}, "2026-01-01T00:00:00Z", []),
        ({"type": "string", "format": "date-time"}, "soon",
         ['spec.x: Invalid value: "soon": spec.x in body must be of type date-time: "soon"']),
        ({"type": "string", "format": "unheard-of"}, "anything", []),
    ],
)  # fmt: skip
def test_types_and_formats(schema: dict[str, Any], value: Any, expected: list[str]) -> None:
    assert errors(schema, value) == expected


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"maxLength": 2}, "abc", ["spec.x: Too long: may not be more than 2 bytes"]),
        ({"maxLength": 2}, "ab", []),
        ({"minLength": 2}, "a",
         ['spec.x: Invalid value: "a": spec.x in body should be at least 2 chars long']),
        ({"pattern": "^a+$"}, "ab",
         ["spec.x: Invalid value: \"ab\": spec.x in body should match '^a+$'"]),
        ({"pattern": "b"}, "abc", []),
        ({"maximum": 3}, 4,
         ["spec.x: Invalid value: 4: spec.x in body should be less than or equal to 3"]),
        ({"maximum": 3.0}, 3, []),
        ({"maximum": 3.5, "exclusiveMaximum": True}, 3.5,
         ["spec.x: Invalid value: 3.5: spec.x in body should be less than 3.5"]),
        ({"minimum": 1}, 0,
         ["spec.x: Invalid value: 0: spec.x in body should be greater than or equal to 1"]),
        ({"minimum": 1, "exclusiveMinimum": True}, 1,
         ["spec.x: Invalid value: 1: spec.x in body should be greater than 1"]),
        ({"minimum": 1}, True, []),
        ({"multipleOf": 5}, 7,
         ["spec.x: Invalid value: 7: spec.x in body should be a multiple of 5"]),
        ({"multipleOf": 0.1}, 0.5, []),
        ({"enum": ["a", 1]}, "b",
         ['spec.x: Unsupported value: "b": supported values: "a", "1"']),
        ({"enum": [1]}, True, ['spec.x: Unsupported value: true: supported values: "1"']),
    ],
)  # fmt: skip
def test_scalars(schema: dict[str, Any], value: Any, expected: list[str]) -> None:
    assert errors(schema, value) == expected


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"maxItems": 1}, [1, 2], ["spec.x: Too many: 2: must have at most 1 items"]),
        ({"minItems": 1}, [],
         ["spec.x: Invalid value: 0: spec.x in body should have at least 1 items"]),
        ({"items": {"type": "string"}}, ["a", 1],
         ['spec.x[1]: Invalid value: "integer": spec.x[1] in body must be of type string: '
          '"integer"']),
        ({"x-kubernetes-list-type": "set"}, ["a", "b", "a"],
         ['spec.x[2]: Duplicate value: "a"']),
        ({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
         [{"name": "a", "v": 1}, {"name": "a", "v": 2}],
         ['spec.x[1]: Duplicate value: {"name":"a"}']),
        ({"required": ["a"]}, {"b": 1}, ["spec.x.a: Required value"]),
        ({"maxProperties": 1}, {"a": 1, "b": 1},
         ["spec.x: Too many: 2: must have at most 1 items"]),
        ({"minProperties": 1}, {},
         ["spec.x: Invalid value: 0: spec.x in body should have at least 1 properties"]),
        ({"additionalProperties": {"type": "integer"}}, {"a": "b"},
         ['spec.x.a: Invalid value: "string": spec.x.a in body must be of type integer: '
          '"string"']),
    ],
)  # fmt: skip
def test_lists_and_objects(schema: dict[str, Any], value: Any, expected: list[str]) -> None:
    assert errors(schema, value) == expected


def test_a_required_field_of_the_root_has_a_bare_path() -> None:
    assert errors({"required": ["spec"]}, {}, "") == ["spec: Required value"]


_INT, _SHORT = {"type": "integer"}, {"type": "string", "maxLength": 1}
_WRONG_TYPE = 'spec.x: Invalid value: "boolean": spec.x in body must be of type'


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"anyOf": [_INT, _SHORT]}, "a", []),
        ({"anyOf": [_INT, _SHORT]}, True,
         ['<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)',
          f'{_WRONG_TYPE} integer: "boolean"']),
        ({"oneOf": [_INT, {"type": "number"}]}, 1,
         ['<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). '
          "Found 2 valid alternatives"]),
        ({"oneOf": [_INT, _SHORT]}, True,
         ['<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). '
          "Found none valid", f'{_WRONG_TYPE} integer: "boolean"']),
        ({"oneOf": [_INT, _SHORT]}, 1, []),
        ({"allOf": [_INT, {"maximum": 3}]}, 2, []),
        ({"allOf": [_INT, {"maximum": 3}]}, 4,
         ["spec.x: Invalid value: 4: spec.x in body should be less than or equal to 3",
          '<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf).']),
        ({"not": _INT}, 1,
         ['<nil>: Invalid value: "": "spec.x" must not validate the schema (not)']),
        ({"not": _INT}, "a", []),
    ],
)  # fmt: skip
def test_combinations(schema: dict[str, Any], value: Any, expected: list[str]) -> None:
    assert errors(schema, value) == expected


def test_a_pattern_takes_linear_time() -> None:
    schema = {"pattern": "^(a+)+$"}
    assert len(errors(schema, "a" * 100_000 + "b")) == 1


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(PatternError, match="missing"):
        compile_rules({"pattern": "("})


def test_nested_alternatives_are_checked_once_each() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(60):
        schema = {"anyOf": [schema, {"oneOf": [{"type": "boolean"}]}]}
    assert len(errors(schema, "a")) == 3
