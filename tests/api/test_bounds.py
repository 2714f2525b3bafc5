"""Bounds on values from outside."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.api import bounds


def _deep(levels: int, make: Any) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = make(value)
    return value


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_depth(make: Any) -> None:
    assert bounds.exceeded(_deep(bounds.MAX_DEPTH, make)) == ""
    assert bounds.exceeded(_deep(bounds.MAX_DEPTH + 1, make)) == bounds.TOO_DEEP
    assert bounds.exceeded(_deep(100_000, make)) == bounds.TOO_DEEP


@pytest.mark.parametrize(
    "wrap", [list, lambda items: dict(enumerate(items)), lambda items: [items]]
)
def test_number_of_values(wrap: Any) -> None:
    assert bounds.exceeded(wrap([0] * 1000)) == ""
    assert bounds.exceeded(wrap([0] * (bounds.MAX_VALUES + 1))) == bounds.TOO_MANY
    assert bounds.exceeded(wrap([[0]] * (bounds.MAX_VALUES // 2 + 1))) == bounds.TOO_MANY


def test_exactly_so_many_values() -> None:
    # The outermost value counts too.
    assert bounds.exceeded([0] * (bounds.MAX_VALUES - 1)) == ""
    assert bounds.exceeded([0] * bounds.MAX_VALUES) == bounds.TOO_MANY
    assert bounds.exceeded({"a": [0] * (bounds.MAX_VALUES - 2)}) == ""
    assert bounds.exceeded({"a": [0] * (bounds.MAX_VALUES - 1)}) == bounds.TOO_MANY
    assert bounds.exceeded("text") == bounds.exceeded(None) == ""
