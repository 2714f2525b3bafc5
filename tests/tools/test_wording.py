"""The word list: which lines it finds, in prose and in Python, and what may be allowed."""

from __future__ import annotations

import textwrap

import pytest

from tools.wording import REPOSITORY, WordList, uses

_LIST = WordList.read(
    """
    paths = ["docs"]
    [words]
    told = "reported"
    "of the machine" = "host's"
    [[allowed]]
    path = "docs/users.md"
    text = "the word told"
    reason = "it is about the word"
    """
)


def _found(text: str, path: str) -> list[tuple[int, str]]:
    return [(use.line, use.word) for use in uses(textwrap.dedent(text), path, _LIST)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The user is told.\n", [(1, "told")]),
        ("fine\nTold\n", [(2, "told")]),
        ("untold stories, a toldo\n", []),
        ("users of the\nmachine\n", [(1, "of the machine")]),
        ("the machine\n", []),
    ],
)
def test_words_and_phrases_of_prose_are_found(text: str, expected: list[tuple[int, str]]) -> None:
    assert _found(text, "docs/page.md") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""It is told."""\n', [(1, "told")]),
        ('"""Fine.\n\nIt is told.\n"""\n', [(3, "told")]),
        ("x = 1  # told\n", [(1, "told")]),
        ("# the users of the\n# machine\n", [(1, "of the machine")]),
        ("was_told = 1\n", [(1, "told")]),
        ("class HandlersTold: ...\n", [(1, "told")]),
        ('raise ValueError(f"{1} told")\n', [(1, "told")]),
        ("threshold = 1\n", []),
        ("x = of_the or machine\n", []),
    ],
)
def test_comments_strings_and_identifiers_of_python_are_found(
    text: str, expected: list[tuple[int, str]]
) -> None:
    assert _found(text, "src/moorage/a.py") == expected


def test_a_use_is_allowed_in_its_file_on_lines_with_its_text() -> None:
    text = "about the word told\ntold\n"
    assert _found(text, "docs/users.md") == [(2, "told")]
    assert _found(text, "docs/page.md") == [(1, "told"), (2, "told")]


def test_each_allowed_use_has_a_reason_and_still_exists() -> None:
    words = WordList.read((REPOSITORY / "tools" / "wording.toml").read_text())
    for entry in words.allowed:
        assert entry.reason
        assert not entry.path or (REPOSITORY / entry.path).exists()


def test_a_ceiling_is_of_a_directory_that_exists() -> None:
    words = WordList.read((REPOSITORY / "tools" / "wording.toml").read_text())
    for path, most in words.ceilings.items():
        assert (REPOSITORY / path).exists()
        assert most > 0
