"""A value that fits is left as it is by pruning and defaulting."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.registry.custom.decoding import CustomType, set_defaults
from moorage.apiserver.registry.custom.rules import compile_rules
from moorage.apiserver.registry.custom.structure import compile_fits, compile_structure, prune

STRING = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": STRING,
        "d": {**STRING, "default": "x"},
        "n": {**STRING, "nullable": True},
        "o": {"type": "object", "properties": {"a": STRING}},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "l": {"type": "array", "items": {"type": "object", "properties": {"a": STRING}}},
        "f": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "e": {"type": "object", "x-kubernetes-embedded-resource": True},
        "i": {"x-kubernetes-int-or-string": True},
    },
}  # fmt: skip
STRUCTURE = compile_structure(SCHEMA)
FITS = compile_fits(STRUCTURE, completes=True)
_NAMES = st.sampled_from(["a", "d", "n", "o", "m", "l", "f", "e", "i", "x", "metadata"])
_VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=8))
def test_what_fits_is_left_as_it_is(obj: dict[str, Any]) -> None:
    changed = copy.deepcopy(obj)
    type_ = CustomType("t", "T", "g", STRUCTURE, compile_rules(SCHEMA))
    if FITS(obj):
        assert prune(changed, STRUCTURE) == []
        set_defaults(changed, STRUCTURE)
        assert changed == obj
        assert type_.fit(changed) == []


@pytest.mark.parametrize(
    ("obj", "does"),
    [
        ({"d": "1", "a": "2", "o": {"a": "b"}, "m": {"k": 1}, "l": [{"a": "c"}]}, True),
        ({"d": "1", "metadata": {"odd": None}, "f": {"odd": [None]}, "i": 3}, True),
        ({"a": "no default"}, False),
        ({"d": "1", "odd": 1}, False),
        ({"d": "1", "a": None}, False),
        ({"d": "1", "o": []}, False),
        ({"d": "1", "a": {}}, False),
        ({"d": "1", "l": [{"odd": 1}]}, False),
        ({"d": "1", "m": {"k": 1.0}}, False),
    ],
)
def test_fitness(obj: dict[str, Any], does: bool) -> None:
    assert FITS(obj) is does
