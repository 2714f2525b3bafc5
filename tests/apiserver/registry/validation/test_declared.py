"""Declared rules: their errors come last; lists that are too long are not looked at further."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.api.errors import FieldError
from moorage.apiserver.registry.validation.declared import (
    DeclaredError,
    enum_errors,
    in_order,
    itself,
    list_errors,
    long_name_errors,
    max_characters_error,
    short_name_errors,
)


def _bad_items(item: str, path: str) -> Iterator[FieldError]:
    if item == "bad":
        yield FieldError.invalid(path, item, "is bad")


def _texts(errors: Iterator[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def test_declared_errors_are_last_and_otherwise_in_the_order_they_were_found() -> None:
    first, second = FieldError.required("a"), FieldError.required("b")
    early, late = DeclaredError.required("c"), DeclaredError.required("d")
    assert in_order([early, first, late, second]) == [first, second, early, late]


@pytest.mark.parametrize(
    ("items", "errors"),
    [
        ([], []),
        (["a", "b"], []),
        (["a", "bad"], ['p[1]: Invalid value: "bad": is bad']),
        (["a", "a", "a"], ['p[1]: Duplicate value: "a"', 'p[2]: Duplicate value: "a"']),
        (["bad"] * 4, ["p: Too many: 4: must have at most 3 items"]),
    ],
)
def test_lists(items: list[str], errors: list[str]) -> None:
    assert _texts(list_errors(items, "p", 3, _bad_items, key=itself)) == errors


def test_a_list_without_key_and_limit_may_repeat_items() -> None:
    assert _texts(list_errors(["a"] * 100, "p", None, _bad_items)) == []


def test_values() -> None:
    assert _texts(enum_errors("", "p", ("a",))) == ["p: Required value"]
    assert _texts(enum_errors("a", "p", ("a",))) == []
    assert _texts(enum_errors("b", "p", ("a",))) == [
        'p: Unsupported value: "b": supported values: "a"'
    ]
    assert _texts(short_name_errors("", "p")) == _texts(long_name_errors("", "p"))
    assert _texts(short_name_errors("a.b", "p")) == [
        'p: Invalid value: "a.b": must not contain dots'
    ]
    assert _texts(long_name_errors("a.b", "p")) == []
    assert str(max_characters_error("p", 63)) == "p: Too long: may not be more than 63 characters"
