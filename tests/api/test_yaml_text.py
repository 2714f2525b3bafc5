"""YAML text: readers read back what was written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.yaml_text import dump
from moorage.api.yaml_values import parse_document


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b": [1, {"c": "d", "e": []}, [2, [3]]], "f": {}},
         "a: 1\nb:\n- 1\n- c: d\n  e: []\n- - 2\n  - - 3\nf: {}\n"),
        ({"a": {"b": {"c": None}}}, "a:\n  b:\n    c: null\n"),
        ({"a": "true", "b": "1", "c": "", "d": "x: y", "e": "a\nb"},
         'a: "true"\nb: "1"\nc: ""\nd: "x: y"\ne: "a\\nb"\n'),
        ({"image": "registry.example/app:1", "path": "/var/lib", "no": "n"},
         'image: "registry.example/app:1"\npath: /var/lib\n"no": "n"\n'),
        ([], "[]\n"),
        ("text", "text\n"),
        ({"a": 1e16, "b": 1.5, "c": True}, "a: 1.0e+16\nb: 1.5\nc: true\n"),
    ],
)  # fmt: skip
def test_what_is_written(value: Any, text: str) -> None:
    assert dump(value) == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(_JSON)
def test_readers_read_back_what_was_written(value: Any) -> None:
    text = dump(value)
    assert parse_document(text).value == value
    assert yaml.safe_load(text) == value


def test_a_long_key() -> None:
    value = {"k" * 5000: {"a": 1}, "l" * 5000: [1], "x y " * 500: "z"}
    assert parse_document(dump(value)).value == value
    assert yaml.safe_load(dump(value)) == value


@pytest.mark.parametrize(("length", "is_explicit"), [(1000, False), (1001, True)])
def test_keys_beyond_a_thousand_characters_are_explicit(length: int, is_explicit: bool) -> None:
    value = {"a": {"k" * length: 1, "b": 2}}
    text = dump(value)
    assert ("? k" in text) is is_explicit
    assert parse_document(text).value == value


@pytest.mark.parametrize("character", ["\x7f", "\x85", "\x9f", "\u2028", "\ufeff", "\uffff"])
def test_what_yaml_cannot_print_is_escaped(character: str) -> None:
    text = dump({"a": f"x{character}y"})
    assert text == f'a: "x\\u{ord(character):04x}y"\n'
    assert parse_document(text).value == {"a": f"x{character}y"}


@pytest.mark.parametrize(
    "word", ["y", "n", "yes", "no", "true", "false", "on", "off", "null", "nan", "inf", "nil"]
)
def test_text_that_reads_as_a_value_is_quoted(word: str) -> None:
    for text in (word, word.upper(), word.capitalize()):
        assert dump({"a": text}) == f'a: "{text}"\n'
    assert dump({"a": f"{word}s"}) == f"a: {word}s\n"
