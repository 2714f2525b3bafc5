"""Lists of loops: `map` and `filter` have their values whatever the number of items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moorage.apiserver.cel.checked import CheckedExpression
from moorage.apiserver.cel.chunks import makes_list
from moorage.apiserver.cel.environment import make_environment
from moorage.apiserver.cel.evaluator import Evaluator
from moorage.apiserver.cel.library.declaring import Type
from moorage.apiserver.cel.program import Budget, EvaluationError, Program

TYPES = {"items": Type.List(Type.INT), "names": Type.Map(Type.STRING, Type.INT), "any": Type.DYN}
COUNTS = (0, 1, 2, 31, 32, 33, 63, 64, 65, 96, 1000)

LOOPS: list[tuple[str, Callable[[list[int]], Any]]] = [
    ("items.map(x, x + 1)", lambda items: [x + 1 for x in items]),
    ("items.map(x, x % 3 == 0, x * 2)", lambda items: [x * 2 for x in items if x % 3 == 0]),
    ("items.filter(x, x % 2 == 1)", lambda items: [x for x in items if x % 2]),
    ("items.filter(x, x < 32)", lambda items: items[:32]),
    ("any.map(x, x)", lambda items: items),
    ("items.map(x, [x])", lambda items: [[x] for x in items]),
    ("items.map(x, [[x], []])", lambda items: [[[x], []] for x in items]),
    ("items.map(x, items.filter(y, y == x))", lambda items: [[x] for x in items]),
    ("items.map(x, {'a': x})", lambda items: [{"a": x} for x in items]),
    ("items.map(x, optional.of(x)).map(x, x.value())", lambda items: items),
    ("items.transformList(i, x, i + x)", lambda items: [2 * x for x in items]),
    ("items.transformList(i, x, i > 40, x)", lambda items: items[41:]),
    ("items.sortBy(x, -x)", lambda items: items[::-1]),
    ("names.map(n, names[n]).sortBy(x, x)", lambda items: items),
    ("items.map(x, uint(x)).filter(x, type(x) == uint).size()", len),
]


def evaluate(expression: str, count: int, budget: Budget | None = None) -> Any:
    items = list(range(count))
    values = {"items": items, "names": {f"n{x}": x for x in items}, "any": items}
    return Program(make_environment(TYPES), expression).evaluate(values, budget)


@pytest.mark.parametrize("count", COUNTS[:-1])
@pytest.mark.parametrize(("expression", "expected"), LOOPS)
def test_a_loop_has_all_its_items_in_their_order(
    expression: str, expected: Callable[[list[int]], Any], count: int
) -> None:
    assert evaluate(expression, count) == expected(list(range(count)))


@pytest.mark.parametrize("at", COUNTS)
@pytest.mark.parametrize(
    "expression", ["items.map(x, 1 / (x - {}))", "items.filter(x, 1 / (x - {}) < 2)"]
)
def test_an_error_of_any_item_is_that_of_the_loop(expression: str, at: int) -> None:
    with pytest.raises(EvaluationError, match="division by zero"):
        evaluate(expression.format(at), 1100)


def test_items_cost_the_same_whatever_their_number() -> None:
    costs = []
    for count in (100, 101, 1000):
        budget = Budget(1_000_000)
        evaluate("items.map(x, x + 1).size() >= 0", count, budget)
        costs.append(1_000_000 - budget.remaining)
    assert costs[2] - costs[0] == 900 * (costs[1] - costs[0])


@pytest.mark.parametrize(
    "expression",
    [
        "items.all(x, x > 0)",
        "items.exists(x, x > 0)",
        "items.exists_one(x, x > 0)",
        "cel.bind(a, items, a + [1])",
        "cel.bind(a, [], a + [1])",
    ],
)
def test_other_loops_stay_as_they_are(expression: str) -> None:
    serialized = Program(make_environment(TYPES), expression).serialized()
    assert not makes_list(CheckedExpression(serialized).root.comprehension_expr)


@pytest.mark.parametrize(
    "loop", ["map(x, x)", "filter(x, x != '')", "map(x, x != '', x)", "transformList(i, x, x)"]
)
async def test_a_rule_may_go_through_thousands_of_items(loop: str) -> None:
    rule = {"rule": f"self.texts.{loop}.size() == 9000"}
    texts = {"type": "array", "items": {"type": "string"}}
    schema = {
        "type": "object",
        "properties": {"texts": texts},
        "x-kubernetes-validations": [rule],
    }
    async with Evaluator(deadline_s=60) as evaluator:
        assert await evaluator.violations("a", schema, {"texts": ["a"] * 9000}, None) == []
        (broken,) = await evaluator.violations("a", schema, {"texts": ["a"] * 8999}, None)
        assert broken.detail.startswith("failed rule")
