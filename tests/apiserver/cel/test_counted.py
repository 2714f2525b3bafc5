"""Costs of evaluations: what Kubernetes counts for the same expressions and values.

`kubernetes_1_37_costs.json` has what its environment (`apiserver/pkg/cel/environment`) reports as
the actual cost of each expression with the values below.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.library.declaring import Type
from moorage.apiserver.cel.library.meter import CALL_LIMIT
from moorage.apiserver.cel.program import Budget, EvaluationError, OutOfBudgetError, Program

TEXT = "0123456789"
VALUES: dict[str, Any] = {
    "self": {
        "a": "x", "name": "a-name", "long": TEXT * 10, "l": [1, 2, 3, 4, 5],
        "t": ["a", "bb", "c" * 40], "m": {"k": "v", "k2": "v2"}, "n": 5,
        "o": [{"name": "a", "v": 1}, {"name": "b", "v": 2}], "e": "", "d": 1.5, "b": True,
    },
    "text": TEXT * 5, "texts": ["abc", "d" * 30, ""], "numbers": [1, 2, 3, 4, 5, 6, 7],
    "labels": {"app": "web", "tier": "x" * 25}, "number": 3,
}  # fmt: skip
TYPES = {
    "self": Type.DYN, "text": Type.STRING, "texts": Type.List(Type.STRING),
    "numbers": Type.List(Type.INT), "labels": Type.Map(Type.STRING, Type.STRING),
    "number": Type.INT,
}  # fmt: skip
COSTS: dict[str, int] = msgspec.json.decode(
    Path(__file__).with_name("kubernetes_1_37_costs.json").read_bytes()
)
MOST = 1 << 40


def evaluate(expression: str, values: dict[str, Any], *, is_typed: bool = False) -> tuple[Any, int]:
    types = TYPES if values is VALUES else dict.fromkeys(values, Type.DYN)
    budget = Budget(MOST)
    program = Program(make_environment(types), expression, is_typed=is_typed)
    try:
        value = program.evaluate(values, budget)
    except EvaluationError as error:
        value = error
    return value, MOST - budget.remaining


@pytest.mark.parametrize(("expression", "cost"), COSTS.items())
def test_an_evaluation_costs_what_it_costs_in_kubernetes(expression: str, cost: int) -> None:
    assert evaluate(expression, VALUES)[1] == cost


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        # Constants are evaluated when an expression is compiled.
        ("[1, [2, 'a']] == [b'a']", 1),
        ("{'a': {1: [2]}}.size()", 1),
        ("[1, number][0]", 13),
        ("{'a': number}.size()", 32),
        ("{number: 'a'}.size()", 32),
        ("dyn([1]).size()", 1),
        ("int('1') + int('2')", 1),
        ("string(1 + 2)", 2),
        # Items are bytes or texts that are read.
        ("[b'%s'].min().size()" % ("a" * 100), 11),
        ("['%s'].min().size()" % ("a" * 100), 11),
        ("'%s'.lowerAscii()" % ("a" * 95), 10),
        ("b'abcdefghijkl' == bytes(text)", 8),
        ("text == '12345678901'", 3),
        # A name that is bound is paid for where it is reached.
        ("cel.bind(v, text + text, true)", 0),
        ("cel.bind(v, text + text, v.size() > 0)", 15),
        ("self.b ? cel.bind(v, text, v) : ''", 4),
        ("false && text == text", 0),
        ("true || text == text", 0),
        ("optional.none().or(optional.of(number)).hasValue()", 4),
        ("optional.of(1).orValue(number)", 1),
    ],
)
def test_an_evaluation_costs_what_its_parts_do(expression: str, cost: int) -> None:
    assert evaluate(expression, VALUES)[1] == cost


@pytest.mark.parametrize(
    ("expression", "dynamic", "typed"),
    [
        ("self.x in self.l", 5, 104),
        ("self.x in self.m", 5, 5),
        ("self.t < self.t", 5, 14),
        ("(self.t + self.t).size() >= 0", 7, 26),
        ("(self.l + self.l).size() >= 0", 7, 7),
    ],
)
def test_rules_of_schemas_cost_what_the_types_of_their_values_say(
    expression: str, dynamic: int, typed: int
) -> None:
    values = {"self": {"x": "a", "l": ["b"] * 100, "m": {"a": 1}, "t": TEXT * 10}}
    assert evaluate(expression, values)[1] == dynamic
    assert evaluate(expression, values, is_typed=True)[1] == typed


@pytest.mark.parametrize(
    "expression",
    [
        "self.all(a, self.all(b, a == b))",
        "self.all(a, self.all(b, a == b)) || true",
        "!self.exists(a, self.exists(b, a != b)) && false",
        "[1].all(x, self.all(a, self.all(b, a == b))) ? true : true",
        "self.map(a, self.map(b, a + b)).size() > 0",
        "self.all(a, a.lowerAscii() == a.upperAscii() || a.replace('x', 'x') == a || true) || true",
    ],
)
def test_an_evaluation_is_cut_off_whatever_it_makes_of_the_error(expression: str) -> None:
    value, cost = evaluate(expression, {"self": ["x" * 90_000] * 20}, is_typed=True)
    assert str(value) == "operation cancelled: actual cost limit exceeded"
    assert CALL_LIMIT < cost < 2 * CALL_LIMIT


def test_users_cannot_call_the_counting_functions() -> None:
    with pytest.raises(ValueError, match="token recognition error"):
        Program(make_environment({}), "@cost(-1000) && true")


def test_a_budget_that_is_used_up_leaves_no_value() -> None:
    program = Program(make_environment({"self": Type.DYN}), "self.all(x, x > 0)")
    cost = evaluate("self.all(x, x > 0)", {"self": [1, 2, 3]})[1]
    budget = Budget(cost)
    assert program.evaluate({"self": [1, 2, 3]}, budget) is True
    assert budget.remaining == 0
    with pytest.raises(OutOfBudgetError, match="running out of cost budget, no further validation"):
        program.evaluate({"self": [1, 2, 3]}, budget)


PARTS = st.recursive(
    st.sampled_from(["self.n", "self.t", "self.l", "1", "'abc'", "[1, 2]", "self.m", "true"]),
    lambda inner: st.one_of(
        st.builds("({} == {})".format, inner, inner),
        st.builds("({} + {})".format, inner, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
        st.builds("({} in {})".format, inner, inner),
        st.builds("dyn({}).all(x, {})".format, inner, inner),
        st.builds("dyn({}).map(x, {})".format, inner, inner),
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("cel.bind(v, {}, [v, {}])".format, inner, inner),
        st.builds("size(dyn({}))".format, inner),
    ),
    max_leaves=8,
)


@given(PARTS)
def test_counting_changes_no_value(expression: str) -> None:
    environment = make_environment({"self": Type.DYN})
    values = {"self": {"n": 1, "t": "text", "l": [1, 2, 3], "m": {"a": "b"}}}
    try:
        program = Program(environment, expression, is_typed=True)
    except ValueError:
        return
    plain = environment.compile(expression).eval(data=values)
    try:
        found = program.evaluate(values)
    except EvaluationError:
        assert plain.type() == Type.ERROR
    else:
        assert found == plain.plain_value()


def doubled(count: int) -> str:
    """Return an expression whose value is `v0`, added to itself a number of times."""
    rounds = range(count)
    bound = "".join(f"cel.bind(v{index + 1}, v{index} + v{index}, " for index in rounds)
    return f"{bound}v{count}{')' * count}"


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(2000000000).size() > 0",
        "t.replace('', t).size() > 0",
        "t.replace('a', t).replace('a', t).size() > 0",
        "t.split('').join(t).size() > 0",
        "['', ''].join(t.replace('a', t)).replace('a', t).size() > 0",
        f"cel.bind(v0, [1, 2], {doubled(24)}.size() > 0)",
        f"cel.bind(v0, t.split(''), {doubled(14)}.size() > 0)",
        f"cel.bind(v0, dyn(t), {doubled(16)} != dyn(1))",
        f"cel.bind(v0, dyn(bytes(t)), {doubled(16)} != dyn(1))",
        "lists.range(1000).map(i, t.replace('a', 'aaaaa')).size() > 0",
        "t.replace('a', t, 200).findAll('').size() > 0",
    ],
)
def test_what_would_grow_beyond_the_limit_is_refused_before_it_is_made(expression: str) -> None:
    before = peak_bytes()
    value, _ = evaluate(expression, {"t": "a" * 4000})
    assert isinstance(value, EvaluationError)
    assert "cost limit exceeded" in str(value)
    assert peak_bytes() - before < 100 << 20


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("t.replace('a', 'bb').size()", 8000),
        ("t.replace('a', t, 1).size()", 7999),
        ("'aba'.replace('a', 'xy')", "xybxy"),
        ("[t, t].join(',').size()", 8001),
        ("[].join()", ""),
        ("(dyn(t) + dyn(t)).size()", 8000),
        ("(dyn(1) + dyn(2))", 3),
        ("dyn([1]) + dyn([t.size()])", [1, 4000]),
        ("(t.split('') + t.split('')).size()", 8000),
        ("'aéb'.findAll('')", ["", "", "", ""]),
        ("'éa€a'.findAll('[a€]', 2)", ["a", "€"]),
    ],
)
def test_what_grows_within_the_limit_has_its_value(expression: str, expected: Any) -> None:
    assert evaluate(expression, {"t": "a" * 4000})[0] == expected


def test_a_negative_range_is_an_error_of_the_expression() -> None:
    assert isinstance(evaluate("lists.range(-5).size()", {"t": ""})[0], EvaluationError)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
