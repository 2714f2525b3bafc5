"""Completion indexes as text."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.api.jobs import (
    IndexesError,
    contains,
    count,
    format_intervals,
    merged,
    parse_intervals,
    readable_intervals,
)


@pytest.mark.parametrize(
    ("text", "intervals"),
    [
        ("", []),
        ("0", [(0, 0)]),
        ("+0,2-4,7", [(0, 0), (2, 4), (7, 7)]),
        ("0,1", [(0, 0), (1, 1)]),
        ("8-9", [(8, 9)]),
    ],
)
def test_parsing(text: str, intervals: list[tuple[int, int]]) -> None:
    assert parse_intervals(text, 10) == intervals


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1-2-3", 'the fragment "1-2-3" violates the requirement that an index interval can have '
                  "at most two parts separated by '-'"),
        ("-1", 'cannot convert string to integer for index: ""'),
        ("0,x", 'cannot convert string to integer for index: "x"'),
        ("1-x", 'cannot convert string to integer for index: "x"'),
        ("9" * 5000, f'cannot convert string to integer for index: "{"9" * 5000}"'),
        ("10", 'too large index: "10"'),
        ("1-10", 'too large index: "10"'),
        ("2-2", "non-increasing order, previous: 2, current: 2"),
        ("3-2", "non-increasing order, previous: 3, current: 2"),
        ("0-3,3", "non-increasing order, previous: 3, current: 3"),
        ("4,1", "non-increasing order, previous: 4, current: 1"),
    ],
)  # fmt: skip
def test_text_that_is_refused(text: str, says: str) -> None:
    with pytest.raises(IndexesError) as caught:
        parse_intervals(text, 10)
    assert str(caught.value) == says


def test_unreadable_intervals_are_skipped() -> None:
    assert list(readable_intervals("1,x,3-4,12", 10)) == [(1, 1), (3, 4)]
    assert not list(readable_intervals("", 10))


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.integers(-1, 61))
def test_intervals_hold_the_indexes_merged_into_them(
    first: set[int], second: set[int], index: int
) -> None:
    intervals = merged(merged([], first), second)
    indexes = first | second
    assert contains(intervals, index) == (index in indexes)
    assert count(intervals) == len(indexes)
    # Separate: no interval ends beside the next.
    assert all(a[1] + 1 < b[0] for a, b in pairwise(intervals))
    parsed = parse_intervals(format_intervals(intervals), 61)
    assert merged(parsed, ()) == intervals


def test_two_neighbours_are_a_list_and_three_a_range() -> None:
    assert format_intervals([(0, 0), (2, 3), (5, 7)]) == "0,2,3,5-7"
    assert format_intervals([]) == ""
