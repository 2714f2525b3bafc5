"""Unified diffs of texts, as diff(1) and patch(1) write and read them.

`difflib` compares every line with every other in the worst case, so what both texts begin and end
with is taken off before, and very long rests are shown as replaced.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

NO_FILE = "/dev/null"
_CONTEXT = 3
_MOST_LINES = 20_000
_NO_NEWLINE = "\n\\ No newline at end of file\n"


def unified(old_name: str, new_name: str, old: str, new: str) -> str:
    """Return the unified diff of two texts with three lines of context, empty if they are equal."""
    if old == new:
        return ""
    before, after = _lines(old), _lines(new)
    first = _shared(before, after)
    last = _shared(before[first:][::-1], after[first:][::-1])
    start = max(first - _CONTEXT, 0)
    stop = max(last - _CONTEXT, 0)
    middle_old, middle_new = before[start : len(before) - stop], after[start : len(after) - stop]
    is_long = max(len(middle_old), len(middle_new)) > _MOST_LINES
    hunks = (
        _replaced(middle_old, middle_new, start)
        if is_long
        else _shifted(difflib.unified_diff(middle_old, middle_new, n=_CONTEXT), start)
    )
    lines = [f"--- {old_name}\n", f"+++ {new_name}\n", *hunks]
    return "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines)


def _lines(text: str) -> list[str]:
    """Return the lines of a text, which end at newlines alone."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def _shared(left: list[str], right: list[str]) -> int:
    """Return how many items two lists have in common at their beginning."""
    pairs = enumerate(zip(left, right, strict=False))
    shortest = min(len(left), len(right))
    return next((index for index, (one, other) in pairs if one != other), shortest)


def _shifted(lines: Iterator[str], start: int) -> Iterator[str]:
    """Yield the hunks of a diff with the line numbers of the whole texts."""
    for number, line in enumerate(lines):
        if number < 2:
            continue
        if line.startswith("@@ "):
            _, old, new, _ = line.split(" ", 3)
            yield f"@@ {_moved(old, start)} {_moved(new, start)} @@\n"
        else:
            yield line


def _moved(part: str, start: int) -> str:
    line, comma, count = part[1:].partition(",")
    return f"{part[0]}{int(line) + start}{comma}{count}"


def _replaced(old: list[str], new: list[str], start: int) -> Iterator[str]:
    yield f"@@ -{start + 1},{len(old)} +{start + 1},{len(new)} @@\n"
    yield from (f"-{line}" for line in old)
    yield from (f"+{line}" for line in new)
