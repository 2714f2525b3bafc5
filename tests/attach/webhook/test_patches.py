"""Patches between objects."""

from __future__ import annotations

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.attach.webhook.reviews import patch_of


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {}, []),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, []),
        ({"a": {}}, {"a": {"b/c~d": "x"}},
         [{"op": "add", "path": "/a/b~1c~0d", "value": "x"}]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}},
         [{"op": "remove", "path": "/a/c"}, {"op": "replace", "path": "/a/b", "value": 3}]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]},
         [{"op": "replace", "path": "/a", "value": [1, {"b": 3}]}]),
        ({"a": None}, {"a": {"b": 1}}, [{"op": "replace", "path": "/a", "value": {"b": 1}}]),
        # Equal in Python, another value in JSON.
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
    ],
)  # fmt: skip
def test_what_changed_is_in_the_patch(before: Any, after: Any, patch: Any) -> None:
    assert patch_of(before, after) == patch


_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(st.text(max_size=3), _VALUES, max_size=4)


@given(_OBJECTS, _OBJECTS)
def test_a_patch_makes_the_one_of_the_other(before: Any, after: Any) -> None:
    kept = copy.deepcopy(before)
    patched = jsonpatch.apply_patch(before, patch_of(before, after))
    assert repr(_ordered(patched)) == repr(_ordered(after))
    assert before == kept


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(each) for each in value] if isinstance(value, list) else value
