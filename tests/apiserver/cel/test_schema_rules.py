"""Rules of a schema: where they are found, when they are evaluated, what their errors say."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.cel.messages import Violation
from moorage.apiserver.cel.schema_checks import schema_problems
from moorage.apiserver.cel.schema_rules import compile_schema, violations_of

TEXT = {"type": "string"}


def ruled(schema: dict[str, Any], *rules: str | dict[str, Any]) -> dict[str, Any]:
    listed = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    return {**schema, "x-kubernetes-validations": listed}


def a_resource(**fields: Any) -> dict[str, Any]:
    spec = {"type": "object", "properties": fields}
    return {"type": "object", "properties": {"spec": spec}}


def check(schema: dict[str, Any], new: Any, old: Any = None) -> list[Violation]:
    node = compile_schema(schema)
    assert node is not None
    return violations_of(node, {"spec": new}, None if old is None else {"spec": old})


def found(schema: dict[str, Any], new: Any, old: Any = None) -> list[tuple[str, str]]:
    return [(one.path, one.detail) for one in check(schema, new, old)]


def test_a_schema_without_rules_is_not_evaluated() -> None:
    assert compile_schema(a_resource(a=TEXT)) is None
    assert schema_problems(a_resource(a=TEXT)) == []


NODES = a_resource(
    text=ruled(TEXT, "self != 'x'"),
    list={"type": "array", "items": ruled(TEXT, "self != 'x'")},
    map={"type": "object", "additionalProperties": ruled(TEXT, "self != 'x'")},
    both={**TEXT, "allOf": [{"x-kubernetes-validations": [{"rule": "self != 'x'"}]}]},
    inner={"type": "object", "properties": {"text": ruled(TEXT, "self != 'x'")}},
)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"text": "x"}, "spec.text"),
        ({"list": ["a", "x"]}, "spec.list[1]"),
        ({"map": {"a": "a", "b": "x"}}, "spec.map[b]"),
        ({"both": "x"}, "spec.both"),
        ({"inner": {"text": "x"}}, "spec.inner.text"),
    ],
)
def test_rules_of_every_kind_of_node(spec: dict[str, Any], path: str) -> None:
    assert found(NODES, spec) == [(path, "failed rule: self != 'x'")]
    assert check(NODES, spec)[0].value == "x"
    assert found(NODES, {"text": "a", "list": [], "map": {}, "inner": {}, "both": "y"}) == []
    assert found(NODES, {"text": None, "list": None, "map": None}) == []


def test_rules_of_the_resource_see_its_names() -> None:
    schema = ruled(a_resource(), "self.metadata.name != self.kind")
    node = compile_schema(schema)
    assert node is not None
    own = {"kind": "a", "metadata": {"name": "a", "labels": {}}}
    assert violations_of(node, own, None) == [
        Violation("", "failed rule: self.metadata.name != self.kind", shows_value=False)
    ]


def test_rules_of_resources_in_lists_maps_and_fields_see_their_names() -> None:
    pod = {**a_resource(), "x-kubernetes-embedded-resource": True}
    inner = ruled(pod, "self.metadata.name == self.kind")
    schema = a_resource(
        one=inner,
        list={"type": "array", "items": inner},
        map={"type": "object", "additionalProperties": inner},
    )
    good = {"kind": "a", "metadata": {"name": "a"}}
    bad = {"kind": "b", "metadata": {"name": "a"}}
    assert found(schema, {"one": good, "list": [good], "map": {"a": good}}) == []
    broken = found(schema, {"one": bad, "list": [good, bad], "map": {"a": bad}})
    assert [path for path, _ in broken] == ["spec.one", "spec.list[1]", "spec.map[a]"]


OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("rule", "violation"),
    [
        ({"rule": "self.n > 1"}, Violation("spec.o", "failed rule: self.n > 1", shows_value=False)),
        ({"rule": " self.n > 1 ", "message": " too small "},
         Violation("spec.o", "too small", shows_value=False)),
        ({"rule": "self.n > 1", "message": "m", "messageExpression": "'got %d'.format([self.n])"},
         Violation("spec.o", "got 1", shows_value=False)),
        ({"rule": "self.n > 1", "message": "m", "messageExpression": "string(self.n / 0)"},
         Violation("spec.o", "m", shows_value=False)),
        ({"rule": "self.n > 1", "messageExpression": "'a\\nb'"},
         Violation("spec.o", "failed rule: self.n > 1", shows_value=False)),
        ({"rule": "self.n > 1", "messageExpression": "' '"},
         Violation("spec.o", "failed rule: self.n > 1", shows_value=False)),
        ({"rule": "self.n > 1", "reason": "FieldValueRequired", "fieldPath": ".n"},
         Violation("spec.o.n", "failed rule: self.n > 1", "FieldValueRequired", shows_value=False)),
        ({"rule": "self.m > 1"},
         Violation("spec.o", "no such key: m evaluating rule: self.m > 1", value="object")),
        ({"rule": "dyn(self.n) > 'a'", "message": "m"},
         Violation("spec.o", "'no such overload': call arguments did not match a supported "
                   "operator, function or macro signature for rule: m", value="object")),
        ({"rule": "self.n"}, Violation("spec.o", "failed rule: self.n", shows_value=False)),
    ],
)  # fmt: skip
def test_what_a_broken_rule_says(rule: dict[str, Any], violation: Violation) -> None:
    assert check(a_resource(o=ruled(OBJECT, rule)), {"o": {"n": 1}}) == [violation]


def test_a_path_may_lead_through_maps() -> None:
    schema = {"type": "object", "properties": {
        "m": {"type": "object",
              "additionalProperties": {"type": "object", "properties": {"f": TEXT}}}
    }}  # fmt: skip
    rule = {"rule": "false", "fieldPath": ".m['a\\'b'].f"}
    assert found(a_resource(o=ruled(schema, rule)), {"o": {}}) == [
        ("spec.o.m[a'b].f", "failed rule: false")
    ]


def test_no_rule_is_evaluated_after_the_budget_is_exceeded() -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    schema = a_resource(l=ruled(numbers, "self.all(x, self.all(y, x >= y))", "false"))
    assert found(schema, {"l": [1] * 200}) == [
        (
            "spec.l",
            "'operation cancelled: actual cost limit exceeded': no further validation rules will "
            "be run due to call cost exceeds limit for rule: self.all(x, self.all(y, x >= y))",
        )
    ]


COSTLY = "sets.intersects(self, self)"
"""Costs about 640,000 for 800 items."""

OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


def test_the_rules_of_an_object_have_one_budget() -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    rows = {"type": "array", "items": ruled(numbers, COSTLY, "size(self) < 1000")}
    schema = a_resource(rows=rows, last=ruled(NUMBER, "false"))
    assert found(schema, {"rows": [[1] * 800] * 15}) == []
    assert found(schema, {"rows": [[1] * 800] * 17, "last": 1}) == [
        ("spec.rows[15]", OUT_OF_BUDGET)
    ]


def test_rules_after_an_empty_budget_are_not_evaluated() -> None:
    schema = a_resource(a=ruled(NUMBER, "self == 1"), b=ruled(NUMBER, "self == 2"))
    node = compile_schema(schema)
    assert node is not None
    spent = [
        violations_of(node, {"spec": {"a": 1, "b": 2}}, None, budget_units=units)
        for units in range(5)
    ]
    assert [(one.path, one.detail) for (one,) in spent[:4]] == [
        ("spec.a", OUT_OF_BUDGET), ("spec.a", OUT_OF_BUDGET), ("spec.b", OUT_OF_BUDGET),
        ("spec.b", OUT_OF_BUDGET),
    ]  # fmt: skip
    assert spent[4] == []


@pytest.mark.parametrize(
    ("message", "budget_units", "details"),
    [
        (f"{COSTLY} ? 'a' : 'b'", 1_300_000, ["a", OUT_OF_BUDGET]),
        (
            f"{COSTLY} ? 'a' : 'b'",
            1_200_000,
            [
                "messageExpression evaluation failed due to running out of cost budget, no further "
                "validation rules will be run"
            ],
        ),
        (
            f"{COSTLY} && {COSTLY} ? 'a' : 'b'",
            10_000_000,
            [
                "no further validation rules will be run due to call cost exceeds limit for "
                f"messageExpression: \"{COSTLY} && {COSTLY} ? 'a' : 'b'\""
            ],
        ),
    ],
)
def test_messages_are_paid_for_too(message: str, budget_units: int, details: list[str]) -> None:
    numbers = {"type": "array", "items": {"type": "integer"}}
    rule = {"rule": f"!{COSTLY}", "messageExpression": message}
    node = compile_schema(a_resource(l=ruled(numbers, rule, COSTLY)))
    assert node is not None
    violations = violations_of(node, {"spec": {"l": [1] * 800}}, None, budget_units=budget_units)
    assert [violation.detail for violation in violations] == details


NUMBER = {"type": "integer"}
GROWS = "self >= oldSelf"


def test_rules_of_changes_need_an_earlier_value() -> None:
    schema = a_resource(n=ruled(NUMBER, GROWS), m=ruled(NUMBER, GROWS))
    assert found(schema, {"n": 1}) == []
    assert found(schema, {"n": 1}, {"m": 2}) == []
    assert found(schema, {"n": 2}, {"n": 1}) == []
    assert found(schema, {"n": 1}, {"n": 2}) == [("spec.n", f"failed rule: {GROWS}")]


def test_rules_with_an_optional_earlier_value_are_evaluated_without() -> None:
    rule = {"rule": "oldSelf.hasValue() ? self >= oldSelf.value() : self == 1",
            "optionalOldSelf": True}  # fmt: skip
    schema = a_resource(n=ruled(NUMBER, rule))
    assert found(schema, {"n": 1}) == []
    assert len(found(schema, {"n": 2})) == 1
    assert found(schema, {"n": 2}, {"n": 1}) == []
    assert len(found(schema, {"n": 1}, {"n": 2})) == 1


def test_items_have_earlier_values_in_lists_of_type_map_only() -> None:
    item = {"type": "object", "properties": {"k": TEXT, "n": ruled(NUMBER, GROWS)}}
    schema = {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
    }
    new = {"l": [{"k": "b", "n": 1}, {"k": "a", "n": 1}]}
    old = {"l": [{"k": "a", "n": 1}, {"k": "b", "n": 2}]}
    assert found(a_resource(l=schema), new, old) == [("spec.l[0].n", f"failed rule: {GROWS}")]
    assert found(a_resource(l=schema), {"l": ["a", {"k": "b", "n": 1}]}, old) == [
        ("spec.l[1].n", f"failed rule: {GROWS}")
    ]
    assert found(a_resource(l=schema), new, {"l": "a"}) == []
    del schema["x-kubernetes-list-type"]
    assert found(a_resource(l=schema), new, old) == []


def test_what_was_broken_before_may_stay() -> None:
    schema = a_resource(
        n=ruled(NUMBER, "self > 5"), l={"type": "array", "items": ruled(NUMBER, "self > 5")}
    )
    assert [one.is_warning for one in check(schema, {"n": 1}, {"n": 1})] == [True]
    assert [one.is_warning for one in check(schema, {"n": 1}, {"n": 2})] == [False]
    assert [one.is_warning for one in check(schema, {"n": 1})] == [False]
    # Items without earlier values stay when the whole list does.
    assert [one.is_warning for one in check(schema, {"l": [1], "n": 6}, {"l": [1]})] == [True]
    assert [one.is_warning for one in check(schema, {"l": [1, 6]}, {"l": [1]})] == [False]


def shown(rule: str, **more: Any) -> dict[str, Any]:
    return {"Rule": rule, "Message": "", "MessageExpression": "", "Reason": None, "FieldPath": "",
            "OptionalOldSelf": None, **more}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (ruled(a_resource(), "self.zz("),
         (".x-kubernetes-validations[0].rule", shown("self.zz("),
          "compilation failed: ERROR: <input>:1:9: Syntax error")),
        (a_resource(n=ruled(NUMBER, "true", "self + 1")),
         (".properties[spec].properties[n].x-kubernetes-validations[1].rule", shown("self + 1"),
          "cel expression must evaluate to a bool")),
        (a_resource(n=ruled(NUMBER, "self > 'a'")),
         (".properties[spec].properties[n].x-kubernetes-validations[0].rule", shown("self > 'a'"),
          "compilation failed: ERROR: <input>:1:6: found no matching overload")),
        (a_resource(n=ruled(NUMBER, {"rule": "true", "messageExpression": "1"})),
         (".properties[spec].properties[n].x-kubernetes-validations[0].messageExpression",
          shown("true", MessageExpression="1"), "messageExpression must evaluate to a string")),
        (a_resource(n=ruled(NUMBER, {"rule": "true", "messageExpression": "'"})),
         (".properties[spec].properties[n].x-kubernetes-validations[0].messageExpression",
          shown("true", MessageExpression="'"), "messageExpression compilation failed: ERROR")),
        (a_resource(n=ruled(NUMBER, {"rule": "true", "optionalOldSelf": True})),
         (".properties[spec].properties[n].x-kubernetes-validations[0].optionalOldSelf", True,
          "may not be set if oldSelf is not used in rule")),
        (a_resource(n=ruled(NUMBER, {"rule": "oldSelf.hasValue(", "optionalOldSelf": True})),
         (".properties[spec].properties[n].x-kubernetes-validations[0].rule",
          shown("oldSelf.hasValue(", OptionalOldSelf=True), "compilation failed: ERROR: <input>")),
        (a_resource(l={"type": "array", "items": ruled(NUMBER, GROWS)}),
         (".properties[spec].properties[l].items.x-kubernetes-validations[0].rule", GROWS,
          "oldSelf cannot be used on the uncorrelatable portion of the schema within "
          "{root}.properties[spec].properties[l]")),
        (a_resource(m={"type": "object", "additionalProperties": ruled(NUMBER, "1")}),
         (".properties[spec].properties[m].additionalProperties.x-kubernetes-validations[0].rule",
          shown("1"), "cel expression must evaluate to a bool")),
        (a_resource(n={**NUMBER, "allOf": [{"x-kubernetes-validations": [{"rule": "1"}]}]}),
         (".properties[spec].properties[n].allOf[0].x-kubernetes-validations[0].rule", shown("1"),
          "cel expression must evaluate to a bool")),
    ],
)  # fmt: skip
def test_problems_of_rules(schema: dict[str, Any], problem: tuple[str, Any, str]) -> None:
    (only,) = schema_problems(schema)
    assert (only.path, only.value, only.detail[: len(problem[2])]) == problem


def test_rules_that_compile_are_no_problem() -> None:
    rule = {"rule": "oldSelf.hasValue() || self > 1", "optionalOldSelf": True,
            "messageExpression": "oldSelf.hasValue() ? 'a' : 'b'"}  # fmt: skip
    assert schema_problems(a_resource(n=ruled(NUMBER, rule, "self > 1", GROWS))) == []
