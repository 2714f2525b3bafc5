"""Completion indexes of Indexed Jobs in their text form: `0,2-4,7`.

Source: batch/v1 API documentation of `status.completedIndexes`; `parseIndexInterval` for the error
texts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

Interval = tuple[int, int]
"""First and last index, both included."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_NO_LIMIT = 10**18


class IndexesError(ValueError):
    """The text is not a list of ascending intervals below the number of completions."""


def parse_interval(text: str, completions: int) -> Interval:
    """Parse one interval, `3` or `3-5`. Raises IndexesError."""
    limits = text.split("-")
    if len(limits) > 2:
        raise IndexesError(
            f'the fragment "{text}" violates the requirement that an index interval can have at '
            "most two parts separated by '-'"
        )
    numbers = [_parse_index(limit, completions) for limit in limits]
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        raise IndexesError(_not_ascending(*numbers))
    return numbers[0], numbers[-1]


def parse_intervals(text: str, completions: int) -> list[Interval]:
    """Parse ascending intervals; an empty text is none. Raises IndexesError."""
    intervals: list[Interval] = []
    for part in text.split(",") if text else ():
        interval = parse_interval(part, completions)
        if intervals and intervals[-1][1] >= interval[0]:
            raise IndexesError(_not_ascending(intervals[-1][1], interval[0]))
        intervals.append(interval)
    return intervals


def readable_intervals(text: str, completions: int) -> Iterator[Interval]:
    """Yield the intervals of a text that parse, in its order; skip the others."""
    for part in text.split(",") if text else ():
        try:
            yield parse_interval(part, completions)
        except IndexesError:
            continue


def clamped_intervals(text: str, completions: int) -> list[Interval]:
    """Return the ascending, separate intervals of a text, without indexes above completions.

    Indexes that were valid may have come above when completions were lowered.
    """
    readable = readable_intervals(text, _NO_LIMIT)
    return merged(((first, min(last, completions - 1)) for first, last in readable
                   if first < completions), ())  # fmt: skip


def merged(intervals: Iterable[Interval], indexes: Iterable[int]) -> list[Interval]:
    """Return the ascending, separate intervals of all these indexes."""
    result: list[Interval] = []
    for first, last in sorted([*intervals, *((index, index) for index in indexes)]):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return result


def contains(intervals: Sequence[Interval], index: int) -> bool:
    """Return whether an index is in ascending intervals."""
    at = bisect_right(intervals, index, key=itemgetter(0))
    return at > 0 and index <= intervals[at - 1][1]


def count(intervals: Iterable[Interval]) -> int:
    """Return how many indexes the intervals hold."""
    return sum(last - first + 1 for first, last in intervals)


def format_intervals(intervals: Iterable[Interval]) -> str:
    """Format ascending intervals; two neighbours are a list, three and more a range."""
    return ",".join(
        str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}"
        for first, last in intervals
    )


def _parse_index(text: str, completions: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise IndexesError(f'cannot convert string to integer for index: "{text}"')
    index = int(text)
    if index >= completions:
        raise IndexesError(f'too large index: "{text}"')
    return index


def _not_ascending(previous: int, current: int) -> str:
    return f"non-increasing order, previous: {previous}, current: {current}"
