"""Counted nouns: one is singular."""

from __future__ import annotations

import pytest

from moorage.api.text import counted


@pytest.mark.parametrize(
    ("count", "words", "expected"),
    [
        (0, ("node",), "0 nodes"),
        (1, ("node",), "1 node"),
        (2, ("node",), "2 nodes"),
        (1, ("class", "classes"), "1 class"),
        (3, ("class", "classes"), "3 classes"),
    ],
)
def test_a_noun_agrees_with_its_count(count: int, words: tuple[str, ...], expected: str) -> None:
    assert counted(count, *words) == expected
