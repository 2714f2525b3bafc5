"""The cache whose keys cannot grow."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api import fields, labels, quantity
from moorage.api.remembered import LONGEST_KEY, remembered, remembered_by_json
from moorage.apiserver.endpoints import negotiation, routing
from moorage.apiserver.registry.validation import metadata
from moorage.scheduler import terms


def test_short_keys_are_remembered_and_long_ones_are_not() -> None:
    asked: list[Any] = []

    @remembered(10)
    def answer(*key: Any) -> int:
        asked.append(key)
        return len(asked)

    assert answer("a") == answer("a") == 1
    assert answer(b"a", 1) == answer(b"a", 1) == 2
    for long in ("a" * (LONGEST_KEY + 1), b"a" * (LONGEST_KEY + 1)):
        assert answer(long) != answer(long)
        assert answer(1, long) != answer(1, long)
    assert answer("a" * LONGEST_KEY) == answer("a" * LONGEST_KEY)


@pytest.mark.parametrize(
    ("function", "long"),
    [
        (labels.parse, ("a in (" + ",".join(["b"] * 1000) + ")",)),
        (fields.parse, ("metadata.name=" + "a" * 2000,)),
        (quantity.parse, ("0" * 2000,)),
        (quantity.canonical, ("0" * 2000,)),
        (routing.parse_path, ("/api/v1/" + "a" * 2000,)),
        (negotiation.negotiate, ("application/json" + "," * 2000, True, True)),
        (metadata.key_complaints, ("a" * 2000,)),
        (metadata._value_complaints, ("a" * 2000,)),
        (metadata._namespace_complaints, ("a" * 2000,)),
        (terms._parsed, (b'{"matchLabels":{"a":"' + b"b" * 2000 + b'"}}',)),
    ],
)
def test_no_cache_that_requests_reach_keeps_a_long_key(function: Any, long: Any) -> None:
    before = function.cache_info().currsize
    function(*long)
    assert function.cache_info().currsize == before


def test_equal_json_values_are_remembered_and_types_are_distinguished() -> None:
    asked: list[Any] = []

    @remembered_by_json(10)
    def answer(value: Any) -> int:
        asked.append(value)
        return len(asked)

    assert answer({"a": ["1"]}) == answer({"a": ["1"]}) == 1
    assert answer({"a": [1]}) == 2
    assert answer({"a": [True]}) == 3
    long = {"a": "b" * LONGEST_KEY}
    assert answer(long) != answer(long)
    assert asked == [{"a": ["1"]}, {"a": [1]}, {"a": [True]}, long, long]
