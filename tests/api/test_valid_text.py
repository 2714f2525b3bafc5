"""Text of other programs is made fit to be sent."""

from __future__ import annotations

import os

import msgspec
import pytest

from moorage.api.text import valid_text


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"plain", "plain"), ("é\U0001f40b".encode(), "é\U0001f40b"), (b"a\xff\xfeb", "a��b")],
)
def test_bytes_that_are_no_text_are_replaced(name: bytes, shown: str) -> None:
    text = valid_text(os.fsdecode(name))
    assert text == shown
    assert msgspec.json.decode(msgspec.json.encode(text)) == shown
