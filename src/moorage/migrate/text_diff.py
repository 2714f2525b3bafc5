"""Unified diffs of texts, as diff(1) and patch(1) write and read them.

`difflib` compares every line with every other in the worst case. Edits of a migration are a few
lines each, so in long texts the end of a difference is looked for close to its beginning.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

NO_FILE = "/dev/null"
_CONTEXT = 3
_LONG = 2_000
_NEARBY = 60
_SAME_LINES = 3
_NO_NEWLINE = "\n\\ No newline at end of file\n"


class _Difference(NamedTuple):
    """Lines `old` to `old_end` of the one text are lines `new` to `new_end` of the other."""

    old: int
    old_end: int
    new: int
    new_end: int


def unified(old_name: str, new_name: str, old: str, new: str) -> str:
    """Return the unified diff of two texts with three lines of context, empty if they are equal."""
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    is_long = max(len(before), len(after)) > _LONG
    differences = _nearby_differences(before, after) if is_long else _differences(before, after)
    lines = [f"--- {old_name}\n", f"+++ {new_name}\n"]
    for hunk in _hunks(differences):
        lines += _written(hunk, before, after)
    return "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines of a text, which end at newlines alone."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _differences(before: list[str], after: list[str]) -> Iterator[_Difference]:
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, old, old_end, new, new_end in matcher.get_opcodes():
        if tag != "equal":
            yield _Difference(old, old_end, new, new_end)


def _nearby_differences(before: list[str], after: list[str]) -> Iterator[_Difference]:
    """Yield the differences, each ended by the next lines that are the same in both texts."""
    old = new = 0
    while old < len(before) or new < len(after):
        if old < len(before) and new < len(after) and before[old] == after[new]:
            old, new = old + 1, new + 1
            continue
        difference = _nearest(before, after, old, new)
        yield difference
        old, new = difference.old_end, difference.new_end


def _nearest(before: list[str], after: list[str], old: int, new: int) -> _Difference:
    for distance in range(1, 2 * _NEARBY):
        for old_lines in range(max(0, distance - _NEARBY), min(distance, _NEARBY) + 1):
            old_end, new_end = old + old_lines, new + distance - old_lines
            if old_end > len(before) or new_end > len(after):
                continue
            one, other = (
                before[old_end : old_end + _SAME_LINES],
                after[new_end : new_end + _SAME_LINES],
            )
            if one == other:
                return _Difference(old, old_end, new, new_end)
    return _Difference(old, len(before), new, len(after))


def _hunks(differences: Iterable[_Difference]) -> Iterator[list[_Difference]]:
    """Yield differences that stand so close that their contexts touch."""
    hunk: list[_Difference] = []
    for difference in differences:
        if hunk and difference.old - hunk[-1].old_end > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(difference)
    if hunk:
        yield hunk


def _written(hunk: list[_Difference], before: list[str], after: list[str]) -> Iterator[str]:
    first, last = hunk[0], hunk[-1]
    start = max(first.old - _CONTEXT, 0)
    stop = min(last.old_end + _CONTEXT, len(before))
    new_start = first.new - (first.old - start)
    new_stop = last.new_end + (stop - last.old_end)
    yield f"@@ -{_range(start, stop)} +{_range(new_start, new_stop)} @@\n"
    at = start
    for difference in hunk:
        yield from (f" {line}" for line in before[at : difference.old])
        yield from (f"-{line}" for line in before[difference.old : difference.old_end])
        yield from (f"+{line}" for line in after[difference.new : difference.new_end])
        at = difference.old_end
    yield from (f" {line}" for line in before[at:stop])


def _range(start: int, stop: int) -> str:
    """Return lines as a hunk's head has them: from 1, and the line before an empty range."""
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"
