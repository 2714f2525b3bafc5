"""YAML bodies: JSON among them means the same, and is refused in the same words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.yaml_values import parse_document
from moorage.apiserver.registry.schema.errors import DecodeError
from moorage.apiserver.registry.yaml_body import parse_yaml

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.sampled_from([None, 2]))
def test_json_means_what_the_parser_of_yaml_reads(obj: dict[str, Any], indent: int | None) -> None:
    body = json.dumps(obj, indent=indent).encode()
    assert parse_yaml(body) == (obj, [])
    # YAML has no escapes of UTF-16, and no place for some keys, so that only most can be compared.
    if "\\u" not in body.decode() and "\\b" not in body.decode() and "<<" not in body.decode():
        assert parse_document(body).value == obj


@pytest.mark.parametrize(
    ("body", "words"),
    [(b'{"a": 1, "a": 2}', 'key "a"'), (b'{"a": {"b": 1,\n"b": 2}}', 'key "b"')],
)
def test_a_repeated_key_is_complained_of_as_of_yaml(body: bytes, words: str) -> None:
    document, repeated = parse_yaml(body)
    assert words in repeated[0]
    assert repeated == parse_document(body).repeated
    assert document == parse_document(body).value


@pytest.mark.parametrize("body", [b"{", b'{"a": [}', b"{a: b", b'{"a": 1} x', b'{"a":' * 5000])
def test_what_is_wrong_is_said_by_the_parser_of_yaml(body: bytes) -> None:
    with pytest.raises(DecodeError, match=r"^yaml: "):
        parse_yaml(body)


def test_flow_maps_of_yaml_that_are_no_json_are_read() -> None:
    assert parse_yaml(b"{a: b, c: [1, yes]}") == ({"a": "b", "c": [1, True]}, [])
    assert parse_yaml(b'{"a": 1}\n# a comment') == ({"a": 1}, [])
