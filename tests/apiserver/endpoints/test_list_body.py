"""Bodies of lists: the same document in one piece, in many, and indented."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.apiserver.endpoints.list_body import ListBody, batched, joined

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
_ITEMS = st.lists(st.dictionaries(st.text(max_size=4), _VALUES, max_size=3), max_size=6)
_HEAD = b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":['


def _body(items: list[dict[str, object]], limit: int = 20) -> ListBody:
    return ListBody(_HEAD, batched(map(msgspec.json.encode, items), limit), 0)


@given(_ITEMS, st.integers(1, 60))
def test_pieces_are_the_document(items: list[dict[str, object]], limit: int) -> None:
    document = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}
    assert _body(items, limit).whole() == msgspec.json.encode(document) + b"\n"


@given(_ITEMS.filter(bool), st.integers(1, 60))
def test_indented_pieces_are_the_indented_document(
    items: list[dict[str, object]], limit: int
) -> None:
    document = {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}
    expected = msgspec.json.format(msgspec.json.encode(document), indent=2)
    assert b"".join(_body(items, limit).pieces(is_indented=True)) == expected


@pytest.mark.parametrize("limit", [0, 13, 14, 43, 44, 100])
def test_a_short_list_is_one_body(limit: int) -> None:
    items: list[dict[str, object]] = [{"a": "b" * 6}] * 3  # 14 bytes each, and two commas
    whole = _body(items, 1).whole()
    body = _body(items, 1)
    assert body.whole_below(limit) == (whole if limit >= 44 else None)
    if limit < 44:
        assert body.whole() == whole, "nothing is lost by having looked"


def test_batches_are_about_the_limit() -> None:
    items = [b"aa", b"bb", b"c", b"dddd", b"e"]
    assert list(batched(items, 3)) == [b"aa,bb", b",c,dddd", b",e"]
    assert list(batched([])) == []


@given(st.lists(st.binary(min_size=1, max_size=9), max_size=9), st.integers(1, 30))
def test_stored_items_are_joined_within_the_limit(tails: list[bytes], limit: int) -> None:
    batches = list(joined(tails, limit))
    assert b"".join(batches) == b",".join(b"{" + tail for tail in tails)
    sizes = [sum(map(len, tails[:end])) for end in range(len(tails) + 1)]
    assert len(batches) == _fewest_within(sizes, limit)


def _fewest_within(sizes: list[int], limit: int) -> int:
    """Return the number of batches when each has the most items that fit, but at least one."""
    first = count = 0
    while first < len(sizes) - 1:
        fitting = [n for n, size in enumerate(sizes) if size - sizes[first] <= limit]
        first, count = max(fitting[-1], first + 1), count + 1
    return count
