"""Printable text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.text import printable, without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain — text", "plain — text"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("one\ntwo\r", r"one\ntwo\r"),
        ("\u202eright to left\u2066", r"\u202eright to left\u2066"),
        ("\x9b31m\udc80", r"\x9b31m\udc80"),
    ],
)
def test_what_terminals_obey_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_all_that_is_returned_is_printable_but_what_is_kept(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text, keep="\n").replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://u:p@h/x", "http://***@h/x"),
        ("http://u:p@q@h:1/x?a=b&c", "http://***@h:1/x?***"),
        ("https://h/x#frag", "https://h/x?***"),
        ("cannot fetch http://t@h: no, really?", "cannot fetch http://***@h: no, really?"),
        ("http://h/a http://u:p@h/b?c d", "http://h/a http://***@h/b?*** d"),
        ("http://[::1/x?y", "http://[::1/x?***"),
        ("a@b?c", "a@b?c"),
    ],
)
def test_urls_show_no_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
