"""Costs of rules: the numbers of upstream's own estimates, and the bounds that schemas give.

`estimated_costs.json` has an expression of each kind about `VALUE` with its estimate, by the rules
of cel-go (`checker/cost.go`, `ext`) and of the apiserver (`cel/library/cost.go`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.apiserver.cel.checked import CheckedExpression, declare
from moorage.apiserver.cel.costs import estimated_cost
from moorage.apiserver.cel.environment import make_typed_environment
from moorage.apiserver.cel.program import Program
from moorage.apiserver.cel.typed_schema import TypedSchema

LIMIT = 10_000_000


def array(kind: str | dict[str, Any], most: int | None = None) -> dict[str, Any]:
    items = {"type": kind} if isinstance(kind, str) else kind
    return {"type": "array", "items": items, **({} if most is None else {"maxItems": most})}


def mapping(kind: str | dict[str, Any], most: int | None = None) -> dict[str, Any]:
    values = {"type": kind} if isinstance(kind, str) else kind
    bound = {} if most is None else {"maxProperties": most}
    return {"type": "object", "additionalProperties": values, **bound}


def text(most: int | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "string", **({} if most is None else {"maxLength": most}), **more}


def cost(schema: dict[str, Any], rule: str) -> int:
    whole = {"type": "object", "properties": {"value": schema}}
    typed = TypedSchema(whole)
    environment = make_typed_environment(typed.pool, {"self": typed.type_of(schema)})
    checked = CheckedExpression(Program(environment, rule).serialized())
    return estimated_cost(checked, declare(schema))


@pytest.mark.parametrize(
    ("make", "rule", "most", "unbounded", "bounded"),
    [
        (lambda n: array("number", n), "self.all(x, true)", 10, 4718591, 32),
        (lambda n: array("string", n), "self.all(x, true)", 20, 3145727, 62),
        (lambda n: array("boolean", n), "self.all(x, true)", 5, 1887437, 17),
        (lambda n: mapping("number", n), "self.all(x, true)", 10, 1348169, 32),
        (lambda n: mapping("number", n), "has(self.x)", 100, 1, 1),
        (lambda n: mapping("string", n), "self.all(x, true)", 3, 1179647, 11),
        (lambda n: mapping("boolean", n), "self.all(x, true)", 100, 943718, 302),
        (text, "self.contains('test')", 10, 314574, 5),
        (text, "self.startsWith('test')", 15, 2, 2),
        (text, "self.endsWith('test')", 30, 2, 2),
        (text, 'size(self + "hello") > size("hello")', 4, 314578, 7),
        (lambda n: array("number", n), "self[1] == 0.0", 5000, 2, 2),
        (lambda n: array("string", n), "self[1] == self[1]", 8, 314577, 314577),
        (lambda n: array("number", n), "self.all(x, self.all(y, true))", 10, None, 352),
        (lambda n: array("number", n), "self.all(x, self.all(y, self.all(z, true)))", 10, None,
         3552),
        (text, 'self.matches("x")', 50, 314574, 22),
        (text, '"".matches("(((((((((())))))))))[0-9]")', 10, 7, 7),
        (text, 'self.matches("")', 100, 1, 1),
        (lambda n: array("number", n), "self[3] == 0.0", 0, 2, 2),
        (lambda n: mapping("number", n), 'self["x"] == 0.0', 0, 2, 2),
        (text, 'self == "x"', 0, 2, 1),
        (lambda n: text(n, format="byte"), 'self == b"x"', 0, 2, 1),
        (lambda n: array("number", n), "self.all(x, x == 0.0)", 3 * 1024 * 2048, 6291454,
         25165826),
    ],
)  # fmt: skip
def test_the_estimates_of_upstream(
    make: Any, rule: str, most: int, unbounded: int | None, bounded: int
) -> None:
    found = cost(make(None), rule)
    assert found > LIMIT if unbounded is None else found == unbounded
    assert cost(make(most), rule) == bounded


NAMED = {"type": "object", "properties": {"name": text(10), "v": {"type": "integer"}}}
VALUE = {"type": "object", "properties": {
    "t": text(10), "u": text(5), "free": text(), "b": text(10, format="byte"),
    "i": {"type": "integer"}, "d": {"type": "number"}, "f": {"type": "boolean"},
    "l": array(text(10), 4), "n": array("integer", 6), "o": array(NAMED, 5),
    "bs": array(text(10, format="byte"), 3), "open": array("string"),
    "g": array(array(text(5), 2), 3), "m": mapping(text(5), 3),
    "mm": mapping(mapping(text(5), 2), 3), "ml": mapping(array(text(5), 2), 3),
    "span": text(format="duration"), "moment": text(format="date-time"),
    "x": {"x-kubernetes-int-or-string": True},
}}  # fmt: skip
ESTIMATES: dict[str, int] = msgspec.json.decode(
    Path(__file__).with_name("estimated_costs.json").read_bytes()
)


@pytest.mark.parametrize(("rule", "estimate"), ESTIMATES.items())
def test_every_kind_of_expression_has_its_estimate(rule: str, estimate: int) -> None:
    assert cost(VALUE, rule) == estimate


def test_values_of_own_types_are_compared_at_the_cost_that_upstream_tests() -> None:
    url = "url('https:://kubernetes.io/')"
    assert cost(text(), f"{url} == {url}") == 9
    assert cost(text(), f"{url} == url('http://x.b')") == 5
    assert cost(text(), "quantity('50k').sub(20) == quantity('49980')") == 4
