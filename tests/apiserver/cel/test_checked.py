"""Checked expressions: what is read from the tree of the library, and what goes back to it."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.apiserver.cel.changing_tree import ChangingTree
from moorage.apiserver.cel.checked import CheckedExpression, kind_of, make_expr
from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.library.declaring import Type
from moorage.apiserver.cel.library.meter import metering
from moorage.apiserver.cel.program import Program

ENVIRONMENT = make_environment({"object": Type.DYN, "text": Type.STRING, "a.b": Type.INT})


def check(expression: str) -> CheckedExpression:
    return CheckedExpression(Program(ENVIRONMENT, expression).serialized())


@pytest.mark.parametrize(
    ("expression", "kind", "type_kind", "overloads"),
    [
        ("text", "ident_expr", "primitive", ()),
        ("object", "ident_expr", None, ()),
        ("object.x", "select_expr", None, ()),
        ("1", "const_expr", "primitive", ()),
        ("[1]", "list_expr", "list_type", ()),
        ("{'a': 1}", "struct_expr", "map_type", ()),
        ("[1].all(x, true)", "comprehension_expr", "primitive", ()),
        ("duration('1h')", "call_expr", "well_known", ("string_to_duration",)),
        ("quantity('1')", "call_expr", "message_type", ("quantity_STRING",)),
        ("optional.of(1)", "call_expr", "abstract_type", ("optional_of",)),
        ("null", "const_expr", "null", ()),
        ("int", "ident_expr", "type", ()),
        ("'a' in object", "call_expr", "primitive", ("in_list", "in_map")),
        ("text + text", "call_expr", "primitive", ("add_string",)),
    ],
)
def test_each_expression_has_its_kind_its_type_and_the_overloads_it_may_mean(
    expression: str, kind: str, type_kind: str | None, overloads: tuple[str, ...]
) -> None:
    checked = check(expression)
    type_ = checked.type_of(checked.root)
    assert kind_of(checked.root) == kind
    assert (type_ and type_.WhichOneof("kind")) == type_kind
    assert tuple(sorted(checked.overloads(checked.root))) == tuple(sorted(overloads))


@pytest.mark.parametrize(
    ("expression", "fields"),
    [
        ("object.a + object.b.c", {"a", "b"}),
        ("[object.a, {'k': object.b}, {object.c: 1}]", {"a", "b", "c"}),
        ("[1].all(x, object.a == x) && object.b.exists(y, y == object.c)", {"a", "b", "c"}),
        ("has(object.a) ? object.?b.hasValue() : text == object.c", {"a", "c"}),
        ("text == 'object.a'", set()),
        ("cel.bind(v, object.a, v.b)", {"a"}),
    ],
)
def test_fields_of_a_variable_are_those_that_are_mentioned(
    expression: str, fields: set[str]
) -> None:
    assert check(expression).fields_of("object") == fields


def test_a_variable_whose_name_has_a_dot_is_a_name_and_no_field() -> None:
    dotted, field = check("a.b"), check("object.b")
    assert dotted.is_name(dotted.root)
    assert not field.is_name(field.root)


def evaluated(checked: CheckedExpression, values: dict[str, Any]) -> tuple[Any, int]:
    with metering() as meter:
        program = ENVIRONMENT.deserialize(checked.serialized())
        return program.eval(data=values).plain_value(), meter.cost


def test_a_tree_that_was_changed_is_what_the_library_evaluates() -> None:
    checked = check("text + 'b'")
    assert evaluated(checked, {"text": "a"}) == ("ab", 0)
    checked.root.call_expr.args[1].const_expr.string_value = "c"
    assert evaluated(checked, {"text": "a"}) == ("ac", 0)


def test_an_expression_made_for_another_has_its_type_or_none_too() -> None:
    checked, dynamic, made = check("[text]"), check("object"), make_expr(1 << 40)
    checked.share_type(made, checked.root)
    assert checked.type_of(made).list_type.elem_type.primitive == 5
    dynamic.share_type(made, dynamic.root)
    assert dynamic.type_of(made) is None


@pytest.mark.parametrize("expression", ["text.size()", "text + 'x'", "[text, 'b']", "object.x"])
def test_a_guard_charges_before_the_value_and_keeps_the_type(expression: str) -> None:
    plain, checked = check(expression), check(expression)
    tree = ChangingTree(checked)
    tree.guard(checked.root, tree.cost(7))
    values = {"text": "abc", "object": {"x": 1}}
    assert evaluated(checked, values) == (evaluated(plain, values)[0], 7)
    assert checked.type_of(checked.root) == plain.type_of(plain.root)


@pytest.mark.parametrize(
    ("expression", "is_bound"), [("text", False), ("'abc'", False), ("text + 'c'", True)]
)
def test_a_shared_operand_is_evaluated_once_under_a_name(expression: str, is_bound: bool) -> None:
    checked = check(f"size({expression})")
    tree = ChangingTree(checked)
    operand = checked.root.call_expr.args[0]
    before = checked.type_of(operand)
    value, binding = tree.shared(operand)
    assert (binding is not None) == is_bound
    assert checked.type_of(value) == before
    tree.guard(checked.root, tree.either(tree.cost(2), tree.cost(1)), binding)
    assert evaluated(checked, {"text": "ab"})[0] == (2 if expression == "text" else 3)


def test_no_two_new_expressions_have_one_id() -> None:
    tree = ChangingTree(check("true"))
    made = [tree.empty(), tree.ident("x"), tree.number(1), tree.cost(3), tree.call("f")]
    assert len({expr.id for expr in made}) == len(made)
