"""Checks of rules when a schema is written: fields that it does not have, and costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.apiserver.cel.schema_checks import schema_problems
from moorage.apiserver.cel.values import escape

ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
    "maps, and strings are declared)"
)


def ruled(schema: dict[str, Any], *rules: str | dict[str, Any]) -> dict[str, Any]:
    listed = [{"rule": one} if isinstance(one, str) else one for one in rules]
    return {**schema, "x-kubernetes-validations": listed}


def resource(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


def spec(*rules: Any, **properties: Any) -> dict[str, Any]:
    schema = resource(**properties)
    schema["properties"]["spec"] = ruled(schema["properties"]["spec"], *rules)
    return schema


FIELDS = {
    "text": {"type": "string", "maxLength": 10},
    "list": {
        "type": "array", "maxItems": 5,
        "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
    "map": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 5},
    "grid": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
    "any": {"x-kubernetes-int-or-string": True},
    "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "none": {"type": "string", "nullable": True},
    "a-b": {"type": "boolean"},
    "when": {"type": "string", "format": "date-time"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "column", "field"),
    [
        ("self.absent == 1", 5, "absent"),
        ("has(self.absent)", 4, "absent"),
        ("self.list.all(x, x.m > 0)", 19, "m"),
        ("self.?absent.hasValue()", 5, "absent"),
        ("self.open.anything == 1", 10, "anything"),
    ],
)
def test_fields_that_the_schema_does_not_have_are_refused(
    rule: str, column: int, field: str
) -> None:
    (problem,) = schema_problems(spec(rule, **FIELDS))
    assert problem.path == ".properties[spec].x-kubernetes-validations[0].rule"
    first = problem.detail.split("\n")[0]
    assert first == f"compilation failed: ERROR: <input>:1:{column}: undefined field '{field}'"


@pytest.mark.parametrize(
    "rule",
    [
        "self.text.size() < 5 && self.list.all(x, x.n > 0) && self.map['a'] == 'b'",
        "self.grid[0][0] == 'a' && self.any == 1 || self.any == 'a'",
        "self.none == null || self.none.startsWith('a')",
        "self.a__dash__b && self.when < timestamp('2026-01-01T00:00:00Z')",
        "has(self.open) && self.map.exists(k, v, k == v)",
        "self.list == oldSelf.list && self == oldSelf",
        "self.list.map(x, x.n).sum() > 1 && self.list.indexOf(self.list[0]) == 0",
        {"rule": "!oldSelf.hasValue() || oldSelf.value().text == self.text",
         "optionalOldSelf": True},
    ],
)  # fmt: skip
def test_rules_that_fit_the_schema(rule: Any) -> None:
    assert schema_problems(spec(rule, **FIELDS)) == []


def test_the_fields_of_every_resource_are_known() -> None:
    rule = "self.metadata.name.size() < 9 && self.kind == 'X' && self.apiVersion != ''"
    assert schema_problems(ruled(resource(), rule)) == []
    (problem,) = schema_problems(ruled(resource(), "has(self.metadata.labels)"))
    assert "undefined field 'labels'" in problem.detail


def test_types_of_objects_have_no_names_of_ours() -> None:
    (problem,) = schema_problems(spec("self == 1", **FIELDS))
    assert "applied to '(object, int)'" in problem.detail


NUMBERS = {"type": "array", "items": {"type": "number"}}


@pytest.mark.parametrize(
    ("schema", "rule", "factor"),
    [
        (NUMBERS, "self.all(x, self.all(y, true))", "more than 100x"),
        ({**NUMBERS, "maxItems": 1500}, "self.all(x, self.all(y, x == y))", "1.125750x"),
        ({**NUMBERS, "maxItems": 6000}, "self.all(x, self.all(y, true))", "10.8x"),
        ({**NUMBERS, "maxItems": 1825}, "self.all(x, self.all(y, true))", "1.000100x"),
        ({**NUMBERS, "maxItems": 2233}, "self.all(x, self.all(y, true))", "1.497003x"),
        ({**NUMBERS, "maxItems": 2240}, "self.all(x, self.all(y, true))", "1.5x"),
        ({**NUMBERS, "maxItems": 18256}, "self.all(x, self.all(y, true))", "100.0x"),
        ({**NUMBERS, "maxItems": 18257}, "self.all(x, self.all(y, true))", "more than 100x"),
    ],
)
def test_a_rule_that_may_cost_too_much_is_refused(
    schema: dict[str, Any], rule: str, factor: str
) -> None:
    problems = schema_problems(resource(numbers=ruled(schema, rule)))
    (problem, *_) = [one for one in problems if one.path]
    assert problem.is_cost
    assert problem.path == ".properties[spec].properties[numbers].x-kubernetes-validations[0].rule"
    assert problem.detail == f"estimated rule cost exceeds budget by factor of {factor} {ADVICE}"


def test_a_bound_makes_a_rule_cheap() -> None:
    rule = "self.all(x, self.all(y, true))"
    assert schema_problems(resource(numbers=ruled({**NUMBERS, "maxItems": 100}, rule))) == []


def test_a_rule_below_a_list_is_multiplied_by_its_items() -> None:
    items = ruled({"type": "string"}, "self.contains('test')")
    unbounded = {"type": "array", "items": items}
    (problem, *_) = schema_problems(resource(list=unbounded))
    assert problem.detail.startswith("estimated rule cost exceeds budget by factor of more than")
    assert schema_problems(resource(list={**unbounded, "maxItems": 20})) == []


def test_messages_cost_too() -> None:
    message = "self.numbers.all(x, self.numbers.all(y, x == y)) ? 'a' : 'b'"
    rule = {"rule": "true", "messageExpression": message}
    (problem, *_) = schema_problems(spec(rule, numbers=NUMBERS))
    assert problem.path.endswith("[0].messageExpression")
    assert problem.detail.startswith("estimated messageExpression cost exceeds budget by factor of")


def test_all_rules_of_a_schema_may_cost_too_much_together() -> None:
    rule = "self.numbers.all(x, self.numbers.all(y, x == y))"
    schema = spec(*[rule] * 20, numbers={**NUMBERS, "maxItems": 1500})
    problems = schema_problems(schema)
    total = [one for one in problems if not one.path]
    assert [one.detail for one in total] == [
        "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds "
        f"budget by factor of {total[0].detail.split('factor of ')[1].split(' ')[0]} {ADVICE}"
    ]
    named = [one for one in problems if one.detail.startswith("contributed to estimated rule cost")]
    assert len(named) == 4


NAMES = st.text(st.sampled_from("aAbB_-./1x"), min_size=1, max_size=6).filter(escape)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(NAMES, st.sampled_from(sorted(FIELDS)), max_size=8))
def test_any_names_of_fields_are_declared(names: dict[str, str]) -> None:
    """A name that protobuf would refuse must not make the whole schema unknown."""
    properties = {name: FIELDS[kind] for name, kind in names.items()}
    rules = [f"has(self.{escape(name)})" for name in properties]
    assert schema_problems(spec("true", *rules, **properties)) == []


WORDS = (
    "namespace", "package", "return", "import", "continue", "as", "break", "const", "else", "for",
    "function", "if", "let", "loop", "var", "void", "while",
)  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_fields_named_like_reserved_words_are_selected_as_they_are_and_escaped(word: str) -> None:
    rules = (f"self.{word} == 'a'", f"has(self.{word})", f"self.__{word}__ == 'a'")
    fields = {word: {"type": "string", "maxLength": 10}}
    assert schema_problems(spec(*rules, **fields)) == []
    assert schema_problems(spec(f"self.{word} == 1", **fields)) != []
    assert schema_problems(spec(f"self.{word} == 'a'", text=FIELDS["text"])) != []


def test_a_map_named_like_a_reserved_word() -> None:
    rules = ("self.namespace.all(key, key != '')", "self.__namespace__['a'] == 'b'")
    assert schema_problems(spec(*rules, namespace=FIELDS["map"])) == []
