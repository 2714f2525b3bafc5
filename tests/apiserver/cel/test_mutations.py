"""Mutations: what their expressions see, the JSON of their values, and values that have none."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.cel.messages import Mutation, PolicyInput
from moorage.apiserver.cel.mutations import CompiledMutations

GIVEN = PolicyInput(request={"operation": "CREATE"}, object={"spec": {"n": 3}})
FIELDS = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


def mutation(expression: str, kind: str = "ApplyConfiguration") -> dict[str, Any]:
    return {"patchType": kind, FIELDS[kind]: {"expression": expression}}


def mutate(*expressions: str, kind: str = "JSONPatch", index: int = 0, **more: Any) -> Mutation:
    policy = {"mutations": [mutation(one, kind) for one in expressions], **more}
    return CompiledMutations(policy).evaluate(GIVEN, {"most": 5}, index)


@pytest.mark.parametrize(
    ("value", "json"),
    [
        ("1", 1), ("1u", 1), ("1.5", 1.5), ("true", True), ("null", None), ("'x'", "x"),
        ("b'ab'", "YWI="), ("[1, 'a']", [1, "a"]),
        ("{'a': {'b': [b'ab']}}", {"a": {"b": ["YWI="]}}),
        ("timestamp('2026-01-02T03:04:05Z')", "2026-01-02T03:04:05Z"),
        ("duration('90m')", "5400s"), ("duration('1500ms')", "1.5s"),
        ("Object{a: 1}", {"a": 1}), ("object.spec.n", 3), ("[Object{}]", [{}]),
    ],
)  # fmt: skip
def test_a_value_becomes_json(value: str, json: Any) -> None:
    made = mutate(f"[JSONPatch{{op: 'add', path: '/a', value: {value}}}]")
    assert made == Mutation(value=[{"op": "add", "path": "/a", "value": json}])


@pytest.mark.parametrize(
    ("patch", "operation"),
    [
        ("op: 'remove', path: '/a'", {"op": "remove", "path": "/a"}),
        ("op: 'move', from: '/a', path: '/b'", {"op": "move", "from": "/a", "path": "/b"}),
        ("op: 'copy', from: '', path: '/b'", {"op": "copy", "path": "/b"}),
        ("path: '/a', value: null", {"op": "", "path": "/a", "value": None}),
        ("op: 'test'", {"op": "test", "path": ""}),
    ],
)
def test_an_operation_has_the_fields_that_were_given(patch: str, operation: Any) -> None:
    assert mutate(f"[JSONPatch{{{patch}}}]") == Mutation(value=[operation])


UNSUPPORTED = "unsupported return type from ApplyConfiguration expression: "
NO_PATCH = "type mismatch: JSONPatchType.expression should evaluate to array"


@pytest.mark.parametrize(
    ("kind", "expression", "error"),
    [
        ("ApplyConfiguration", "{'a': 1}", f"{UNSUPPORTED}dict"),
        ("ApplyConfiguration", "Object.spec{a: 1}", f"{UNSUPPORTED}dict"),
        ("ApplyConfiguration", "object.spec.n", f"{UNSUPPORTED}int"),
        ("ApplyConfiguration", "[1]", f"{UNSUPPORTED}list"),
        ("ApplyConfiguration", "Object{a: {1: 2}}", "map key 1 is not a string"),
        ("ApplyConfiguration", "Object{spec: Object.status{}}",
         'type mismatch: unexpected type name "Object.status", expected "Object.spec", which '
         "matches field name path from root Object type"),
        ("ApplyConfiguration", "Object{a: object.absent}",
         "expression 'Object{a: object.absent}' resulted in error: no such key: absent"),
        ("JSONPatch", "'x'", NO_PATCH),
        ("JSONPatch", "[1]", f"{NO_PATCH} of JSONPatch, got element of int"),
        ("JSONPatch", "[{'op': 'add'}]", f"{NO_PATCH} of JSONPatch, got element of dict"),
        ("JSONPatch", "[JSONPatch{op: 'add', value: Object{a: Object.b{}}}]",
         'type mismatch: unexpected type name "Object.b", expected "Object.a", which matches field '
         "name path from root Object type"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_applied_is_an_error(kind: str, expression: str, error: str) -> None:
    assert mutate(expression, kind=kind) == Mutation(error=error)


def test_an_expression_sees_parameters_and_variables() -> None:
    made = mutate(
        "Object{a: params.most + variables.n}",
        kind="ApplyConfiguration",
        paramKind={"kind": "X"},
        variables=[{"name": "n", "expression": "object.spec.n"}],
    )
    assert made == Mutation(value={"a": 8})


@pytest.mark.parametrize(
    ("condition", "first"),
    [
        ("false", Mutation(matches=False)),
        ("true", Mutation(value={})),
        ("object.zz",
         Mutation(matches=False,
                  error="expression 'object.zz' resulted in error: no such key: zz")),
    ],
)  # fmt: skip
def test_match_conditions_belong_to_the_first_mutation(condition: str, first: Mutation) -> None:
    conditions = [{"name": "c", "expression": condition}]
    for index, expected in enumerate((first, Mutation(value={"b": 1}))):
        made = mutate(
            "Object{}", "Object{b: 1}", kind="ApplyConfiguration", index=index,
            matchConditions=conditions,
        )  # fmt: skip
        assert made == expected
