from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.node.config.environment import (
    MOST_OF_ALL,
    MOST_OF_ONE,
    expand,
    expand_all,
    expand_strictly,
)
from moorage.node.config.errors import ConfigError

VALUES = {"A": "one", "B.c": "two", "EMPTY": "", "DOLLAR": "$(A)"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plain", "plain"),
        ("$(A)", "one"),
        ("<$(A)-$(B.c)>", "<one-two>"),
        ("$(EMPTY)x", "x"),
        ("$(GONE)", "$(GONE)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$one"),
        ("$$$$(A)", "$$(A)"),
        ("$", "$"),
        ("a$", "a$"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$()", "$()"),
        ("${A}", "${A}"),
        ("$(A))", "one)"),
        # Once is enough: what a value brings in is not looked at again.
        ("$(DOLLAR)", "$(A)"),
    ],
)
def test_references_are_replaced(text: str, wanted: str) -> None:
    assert expand(text, VALUES) == wanted


def test_the_first_mapping_that_has_the_name_wins() -> None:
    assert expand("$(A) $(S)", {"A": "own"}, {"A": "service", "S": "10.0.0.1"}) == "own 10.0.0.1"


def test_strictly_a_name_without_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="GONE"):
        expand_strictly("$(A)/$(GONE)", VALUES)
    assert expand_strictly("$(A)/$$(GONE)", VALUES) == "one/$(GONE)"


@given(st.text(alphabet="$()AB x"))
def test_doubling_every_dollar_keeps_a_text_as_it_is(text: str) -> None:
    assert expand(text.replace("$", "$$"), VALUES) == text


@given(st.text(alphabet="()AB x"))
def test_a_text_without_dollars_is_never_changed(text: str) -> None:
    assert expand(text, VALUES) == text


def test_a_text_that_no_program_could_get_is_refused_before_it_is_made() -> None:
    half = {"A": "x" * (MOST_OF_ONE // 2)}
    assert len(expand("$(A)$(A)", half)) == MOST_OF_ONE
    with pytest.raises(ConfigError, match="fewer or shorter"):
        expand("$(A)$(A).", half)


def test_a_long_text_that_references_shorten_is_taken() -> None:
    text = "$$" * MOST_OF_ONE
    assert expand(text, {}) == "$" * MOST_OF_ONE


def test_total_size_of_a_command_is_bounded() -> None:
    values = {"A": "x" * MOST_OF_ONE}
    words = ["$(A)"] * (MOST_OF_ALL // MOST_OF_ONE)
    assert expand_all(words, values) == [values["A"]] * len(words)
    with pytest.raises(ConfigError, match="the command is longer"):
        expand_all([*words, "x"], values)
