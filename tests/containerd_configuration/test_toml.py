"""TOML as it is written, read back by the standard library."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containerd_configuration.toml import write_toml

# Surrogates are no characters of UTF-8.
CHARACTERS = st.characters(exclude_categories=["Cs"])
KEYS = st.text(CHARACTERS, min_size=1, max_size=8)
SCALARS = st.one_of(
    st.text(CHARACTERS, max_size=12),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))
DOCUMENTS = st.recursive(
    st.dictionaries(KEYS, VALUES, max_size=4),
    lambda inner: st.dictionaries(KEYS, st.one_of(VALUES, inner), max_size=4),
    max_leaves=8,
)


@given(DOCUMENTS)
def test_what_is_written_reads_back_the_same(document: dict[str, Any]) -> None:
    assert tomllib.loads(write_toml(document)) == document


def test_tables_come_after_the_keys_of_their_parent() -> None:
    text = write_toml({"plugins": {"io.x.v1": {"a": {"b": 1}, "c": "d"}}, "version": 2})
    assert text == ('version = 2\n\n[plugins."io.x.v1"]\nc = "d"\n\n[plugins."io.x.v1".a]\nb = 1\n')


def test_a_value_without_form_is_refused() -> None:
    with pytest.raises(TypeError, match="no form for None"):
        write_toml({"key": None})  # type: ignore[dict-item]
