"""Patterns of custom resources: what compiles, and what an error says."""

from __future__ import annotations

import pytest

from moorage.apiserver.registry.custom.formats import PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "a1", False),
        (r"b\z", "ab", True),
        ("[[:alpha:]]", "1", False),
    ],
)
def test_a_pattern_is_searched_for(pattern: str, text: str, matches: bool) -> None:
    assert compile_pattern(pattern)(text) is matches


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("x[a", "missing closing ]: `[a`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a\\", "trailing backslash at end of expression: ``"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?P<a", "invalid named capture: `(?P<a`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        ("[z-a]", "invalid character class range: `z-a`"),
    ],
)
def test_errors_are_in_the_words_of_go(pattern: str, problem: str) -> None:
    with pytest.raises(PatternError) as caught:
        compile_pattern(pattern)
    assert str(caught.value) == f"error parsing regexp: {problem}"
