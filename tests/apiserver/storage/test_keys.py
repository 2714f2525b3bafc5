from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.storage.store import prefix_end

_TEXT = st.text(st.sampled_from("a/0\ud7ff\ue000\U0010ffff\0"), max_size=6)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("pods/", "pods0"),
        ("", ""),
        ("a\U0010ffff", "b"),
        ("\U0010ffff", ""),
        ("a\ud7ff", "a\ue000"),
    ],
)
def test_the_end_of_a_prefix(prefix: str, end: str) -> None:
    assert prefix_end(prefix) == end


@given(_TEXT, _TEXT)
def test_a_key_is_in_the_range_exactly_when_it_has_the_prefix(prefix: str, key: str) -> None:
    end = prefix_end(prefix)
    assert key.startswith(prefix) == (key >= prefix and (not end or key < end))
    # SQLite compares bytes.
    in_bytes = key.encode() >= prefix.encode() and (not end or key.encode() < end.encode())
    assert key.startswith(prefix) == in_bytes
